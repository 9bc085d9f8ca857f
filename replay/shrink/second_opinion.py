"""Whether another process decides otherwise on the same events: `reprise check` of them, under other hash seeds.

A core whose decisions depend on the order of a set, on an address or on a clock agrees with itself in one process, or
in one second; so its recording goes to fresh ones. Where there are contents and a model, tokens are compared as well.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from replay.shrink.evidence import Evidence
from replay.shrink.invariants import Finding
from replay.shrink.written import write_recording

HASH_SEEDS = ("1", "2", "3", "4")
_DIVERGED = 1


def differs_elsewhere(evidence: Evidence) -> Finding | None:
    """The first divergence that a fresh process finds. Costs a third of a second for each."""
    with TemporaryDirectory(prefix="reprise-shrink-") as folder:
        recording = evidence.path
        if recording is None:
            recording = Path(folder) / "run"
            write_recording(recording, evidence.header, evidence.entries, None)
        for hash_seed in HASH_SEEDS:
            if found := _checked(recording, hash_seed):
                return found
        return _executed(evidence, Path(folder) / "contents")


def _checked(recording: Path, hash_seed: str) -> Finding | None:
    command = [sys.executable, "-m", "replay", "check", str(recording), "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != _DIVERGED:
        return None
    place: dict[str, Any] = json.loads(ran.stdout)["divergences"][0]["place"]
    return Finding(
        f"another process decides otherwise at sequence {place['sequence']}, request {place['request']}",
        place["request"],
        place["sequence"],
    )


def _executed(evidence: Evidence, folder: Path) -> Finding | None:
    if evidence.stage is None or evidence.contents is None:
        return None
    recording = evidence.path
    if recording is None:
        write_recording(folder, evidence.header, evidence.entries, evidence.contents)
        recording = folder
    divergences = evidence.stage.execute(recording).divergences
    if not divergences:
        return None
    place = divergences[0].place
    return Finding(
        f"executed again, request {place.request} differs in step {place.step}", place.request, place.sequence
    )
