"""Entries as text: one line per record, in fixed columns, read at a glance and compared by `diff`.

    sequence      time ms  step   record            what it says
         412     1234.567         StepCompleted     step=397 emitted=2 …
                           398  > StepPlanned       …

A decision's line bears `>`. Times count from the opening of the recording. The text depends on the entries alone.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from engine.core import decisions, events
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry, RecordingClosed, RecordingGap, UnknownRecord

HEADING = f"{'sequence':>8} {'time ms':>12} {'request':>7} {'step':>6}   {'record':<17} what it says"
_INDENT = " " * 21


def lines(entry: Entry, opened_ns: int) -> Iterator[str]:
    """The entry's event and decisions, one line each. `opened_ns` is the time that counts as 0."""
    time_ms = (entry.now_ns - opened_ns) / 1e6
    yield f"{entry.sequence:>8} {time_ms:>12.3f} {_columns(entry.event, ' ')}"
    for decision in entry.decisions:
        yield f"{_INDENT} {_columns(decision, '>')}"


def _columns(record: Any, mark: str) -> str:
    request = getattr(record, "request", "")
    step = getattr(record, "step", "")
    return f"{request:>7} {step:>6} {mark} {name_of(record):<17} {describe(record)}".rstrip()


def name_of(record: Any) -> str:
    """The record's name, as in the vocabulary."""
    return f"kind {record.kind}" if isinstance(record, UnknownRecord) else type(record).__name__


def describe(record: Any) -> str:
    """What the record says, without the columns that stand before it."""
    return _DESCRIBE.get(type(record), _all_fields)(record)


def logprob(bits: int) -> float:
    """The fp32 log-probability whose bits are `bits`."""
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return float(value)


def _all_fields(record: Any) -> str:
    skipped = ("request", "step")
    return " ".join(f"{name}={_short(value)}" for name, value in record._asdict().items() if name not in skipped)


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return "[" + " ".join(_short(item) for item in value) + "]"
    return str(value)


def _arrived(event: events.RequestArrived) -> str:
    digests = f"{len(event.prompt_digests)}"
    if event.prompt_digests:  # each digest covers those before it, so the last one stands for all
        digests += f":{event.prompt_digests[-1].hex()[:16]}"
    default = SamplingParams()
    sampling = " ".join(
        f"{name}={value}"
        for name, value in event.sampling._asdict().items()
        if value != getattr(default, name) or name in ("temperature", "seed")
    )
    who = f"{event.request_id}" + (f" tenant={event.tenant}" if event.tenant else "")
    if event.ttft_target_ms or event.itl_target_ms:
        who += f" targets={event.ttft_target_ms}/{event.itl_target_ms}ms"
    return (
        f"{who} priority={event.priority} prompt={event.num_prompt_tokens} max_output={event.max_output_tokens} "
        f"digests={digests} {sampling}"
    )


def _completed(event: events.StepCompleted) -> str:
    emitted = " ".join(
        f"{request}:{digest:016x}:{logprob(bits):.4g}{'!' + flag if flag else ''}"
        for request, flag, digest, bits in event.emitted
    )
    filled = " ".join(f"{request}:{digest.hex()[:16]}" for request, digest in event.filled)
    if event.kv_digests:
        filled += "] kv=[" + " ".join(f"{request}:{index}:{digest:016x}" for request, index, digest in event.kv_digests)
    if event.prompt_logprobs:
        prompts = [f"{request}:{count}:{digest:016x}" for request, count, digest in event.prompt_logprobs]
        filled += "] prompts=[" + " ".join(prompts)
    times = f"execute={event.execute_ns / 1e6:.3f}ms sample={event.sample_ns / 1e6:.3f}ms"
    return f"emitted=[{emitted}] filled=[{filled}] {times}"


def _mismatch(event: events.KVMismatch) -> str:
    readers = " ".join(map(str, event.readers))
    return (
        f"block={event.block} writer={event.writer} readers=[{readers}] noticed={event.noticed} "
        f"place={event.block_index} expected={event.expected:016x} got={event.got:016x}"
    )


def _planned(decision: decisions.StepPlanned) -> str:
    rows = " ".join(f"{request}:{start}+{count}" for request, start, count in decision.rows)
    blocks = " ".join(f"{request}:{block}" for request, block in decision.new_blocks)
    return (
        f"rows=[{rows}] new=[{blocks}] evicted={_short(decision.evicted_blocks)} running={decision.num_running} "
        f"waiting={decision.num_waiting} free={decision.num_blocks_free} budget_left={decision.token_budget_left}"
    )


def _emitted(decision: decisions.TokensEmitted) -> str:
    return "[" + " ".join(f"{request}:{count}" for request, count in decision.rows) + "]"


def _gap(gap: RecordingGap) -> str:
    return f"{gap.num_entries} entries from sequence {gap.first_sequence} on are missing: {gap.cause}"


def _closed(closed: RecordingClosed) -> str:
    return closed.cause


_DESCRIBE: dict[type[Any], Callable[[Any], str]] = {
    events.RequestArrived: _arrived,
    events.StepCompleted: _completed,
    events.KVMismatch: _mismatch,
    decisions.StepPlanned: _planned,
    decisions.TokensEmitted: _emitted,
    RecordingGap: _gap,
    RecordingClosed: _closed,
}


class Trail:
    """The entries just passed: what a report shows before the place of a divergence."""

    def __init__(self, opened_ns: int, num_entries: int) -> None:
        self._opened_ns = opened_ns
        self._entries: deque[Entry] = deque(maxlen=num_entries)

    def pass_by(self, entry: Entry) -> None:
        self._entries.append(entry)

    @property
    def last_ns(self) -> int:
        """When the last of them was handled; 0 before the first."""
        return self._entries[-1].now_ns if self._entries else 0

    def lines(self) -> tuple[str, ...]:
        return tuple(line for entry in self._entries for line in lines(entry, self._opened_ns))
