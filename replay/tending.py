"""The verbs that tend recordings rather than replay them: `show --fsck`, `repair`, `mark`. They load no model.

Exit codes: 0 all is sound or done, 1 something is wrong with the recording, 2 it cannot be done.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from engine.clock import SystemClock
from recorder.errors import RecordingError
from recorder.format import segment_paths
from recorder.fsck import Examination, examine
from recorder.incidents import Pin, pin_segment
from recorder.repair import repair

UNSOUND = 1


def fsck(path: Path, as_json: bool) -> int:
    """Print what every check finds; returns the exit code."""
    examination = examine(path)
    if as_json:
        values = asdict(examination)
        print(json.dumps({**values, "is_sound": examination.is_sound}, indent=2, default=str))
    else:
        print(*_lines(examination), sep="\n")
    return 0 if examination.is_sound else UNSOUND


def repair_into(path: Path, target: Path, as_json: bool) -> int:
    """Make a whole copy and say what it lacks; returns the exit code."""
    done = repair(path, target)
    if as_json:
        print(json.dumps({**asdict(done), "target": str(target)}, indent=2))
    else:
        print(f"{target}: {done.num_entries:,} entries, {done.num_content_records:,} records of contents")
        print(*(f"  lost: {notice}" for notice in done.notices), sep="\n", end="\n" if done.notices else "")
    return UNSOUND if done.notices else 0


def mark(path: Path, reason: str, as_json: bool) -> int:
    """Pin a run, or one segment of it, so that it outlives the bounds; returns the exit code."""
    segments = segment_paths(path) if path.is_dir() else [path]
    if not segments or not all(segment.exists() for segment in segments):
        raise RecordingError(f"{path} is no recording: give a run's folder or one of its segments")
    pin = Pin(reason, is_automatic=False, wall_ns=SystemClock().wall_ns())
    pins = [str(pin_segment(segment, pin)) for segment in segments]
    print(json.dumps({"pins": pins, "reason": reason}, indent=2) if as_json else f"{len(pins)} segments pinned")
    return 0


def _lines(examination: Examination) -> Iterator[str]:
    for file in examination.files:
        state = "sound" if not file.faults else "DAMAGED"
        yield f"{file.path.name:<16} {state:<8} {file.num_bytes:>13,} bytes {file.num_records:>10,} records"
        yield from (f"  {fault}" for fault in file.faults)
    yield from (f"notice: {notice}" for notice in examination.notices)
    yield "fsck: " + ("sound" if examination.is_sound else "not sound: reprise repair REC OUT copies what can be read")
