"""A performance on disk: one closed segment, its contents encrypted beside it. `check` and `execute` take it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.clock import ManualClock, SystemClock
from engine.core.contents import TokenOutput
from engine.core.events import RequestArrived, StepCompleted
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.header import Header
from recorder.vault import Contents
from recorder.writer import Recorder

ORIGIN = "shrunk"
_SEGMENT_BYTES = 1 << 30
_CLOSED = "the performance is over"
_DIED = "engine error"


def write_recording(
    folder: Path, header: Header, entries: Sequence[Entry], contents: Contents | None, *, error: str = ""
) -> None:
    """Make the folder. `header.limits` are the entries' own. Raises RecordingUnwritable when it cannot be written."""
    from recorder.keys import open_ring  # cryptography is for those who keep contents

    clock = ManualClock(entries[0].now_ns if entries else 0)
    keys = open_ring(folder.resolve().parent / "keys", SystemClock(), os.environ) if contents is not None else None
    recorder = Recorder(
        folder,
        replace(header, origin=ORIGIN, segment_number=1, first_sequence=0, starts_fresh=True),
        clock,
        record_content=contents is not None,
        max_segment_bytes=_SEGMENT_BYTES,
        max_queue_entries=3 * len(entries) + 16,
        sync_interval_ms=1_000,
        keys=keys,
    )
    for entry in entries:
        if contents is not None:
            _record_contents(recorder, entry, contents)
        recorder.record(entry)
    recorder.close(_DIED if error else _CLOSED)


def with_limits(header: Header, limits: Limits) -> Header:
    return replace(header, limits=limits.to_dict())


def _record_contents(recorder: Recorder, entry: Entry, contents: Contents) -> None:
    event = entry.event
    if isinstance(event, RequestArrived) and event.request in contents.prompts:
        recorder.record_contents(event.request, contents.prompts[event.request])
    if isinstance(event, StepCompleted) and event.step in contents.tokens:
        rows = contents.tokens[event.step]
        recorder.record_tokens(event.step, tuple([TokenOutput(request, token, 0.0) for request, token in rows]))
