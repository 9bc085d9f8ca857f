"""Whether another process decides otherwise on the same events: `check` of them, under other hash seeds.

A core whose decisions depend on the order of a set, on an address or on a clock agrees with itself in one process, or
in one second; so its recording goes to others, which are kept for the next. Where there are contents and a model,
tokens are compared as well.
"""

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from replay.check import check
from replay.shrink.evidence import Evidence
from replay.shrink.invariants import Finding
from replay.shrink.written import write_recording
from replay.verdict import Verdict

HASH_SEEDS = ("1", "2", "3", "4", "5", "6")  # two items of a set: all six order them alike once in 32
_others: "dict[str, subprocess.Popen[str]]" = {}  # by hash seed; each ends when this process closes its input


def differs_elsewhere(evidence: Evidence) -> Finding | None:
    """The first divergence that another process finds."""
    with TemporaryDirectory(prefix="reprise-shrink-") as folder:
        recording = evidence.path
        if recording is None:
            recording = Path(folder) / "run"
            write_recording(recording, evidence.header, evidence.entries, None)
        for hash_seed in HASH_SEEDS:
            if found := _asked(recording, hash_seed):
                return Finding(f"another process decides otherwise at sequence {found[1]}, request {found[0]}", *found)
        return _executed(evidence, Path(folder) / "contents")


def _asked(recording: Path, hash_seed: str) -> tuple[int, int] | None:
    if hash_seed not in _others:
        _others[hash_seed] = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    other = _others[hash_seed]
    assert other.stdin is not None
    assert other.stdout is not None
    print(json.dumps(str(recording)), file=other.stdin, flush=True)
    place: list[int] = json.loads(other.stdout.readline())
    return (place[0], place[1]) if place else None


@atexit.register
def _end_others() -> None:
    for other in _others.values():
        other.communicate()
    _others.clear()


def _executed(evidence: Evidence, folder: Path) -> Finding | None:
    if evidence.stage is None or evidence.contents is None:
        return None
    recording = evidence.path
    if recording is None:
        write_recording(folder, evidence.header, evidence.entries, evidence.contents)
        recording = folder
    found = _place(evidence.stage.execute(recording))
    return Finding(f"executed again, request {found[0]} differs at sequence {found[1]}", *found) if found else None


def _place(verdict: Verdict) -> tuple[int, int] | None:
    """Request and sequence of the first divergence."""
    if not verdict.divergences:
        return None
    place: Any = verdict.divergences[0].place
    return place.request, place.sequence


def main() -> None:
    """The other process: a path a line in, the place of its first divergence a line out."""
    for line in sys.stdin:
        print(json.dumps(_place(check(Path(json.loads(line)))) or ()), flush=True)


if __name__ == "__main__":
    main()
