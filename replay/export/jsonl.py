"""A recording as JSON lines: its headers but for the digests' key, and every event and decision by name, in full.

A line of a segment's header has `record` "Header"; each other line has the entry's `sequence` and `now_ns`, its `place`
(0 is the event, then its decisions in order), the record's name and its fields. Digests are hexadecimal.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from engine.core.vocabulary import Entry
from replay.lives import Run
from replay.rendering import plain, record_as_values

_LEFT_OUT = ("schema", "structures", "salt")  # of the header: how its bytes lie, and the key of its digests


def write_jsonl(run: Run, file: BinaryIO) -> dict[str, int]:
    """Returns what was written, in counts."""
    num_entries = num_records = 0
    for number, life in enumerate(run.lives):
        header = {name: plain(value) for name, value in life.header.to_map().items() if name not in _LEFT_OUT}
        _put(file, {"engine": number, "record": "Header", **header})
        for entry in life.entries():
            num_entries += 1
            for values in records_of(entry):
                num_records += 1
                _put(file, {"engine": number, **values})
    return {"entries": num_entries, "records": num_records}


def records_of(entry: Entry) -> Iterator[dict[str, Any]]:
    """The entry's event and decisions, each with its place in the stream."""
    for place, record in enumerate((entry.event, *entry.decisions)):
        yield {"sequence": entry.sequence, "now_ns": entry.now_ns, "place": place, **(record_as_values(record) or {})}


def _put(file: BinaryIO, values: dict[str, Any]) -> None:
    file.write(json.dumps(values, separators=(",", ":"), default=str).encode() + b"\n")
