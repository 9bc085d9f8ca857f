"""A recording as a trace: its arrivals as they came, each with as many output tokens as it was given.

Prefixes are known by the digests of full blocks, which cover all before them; they become numbers of 53 bits, which
every JSON reader takes. A request that was given no token (refused, or gone before) counts with what it allowed.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from engine.core.events import RequestArrived
from engine.core.limits import Limits
from recorder.request_span import Phase, RequestSpan
from recorder.timeline import Timeline
from replay.lives import Run
from replay.simulate.arrivals import Arrival

_ID_BITS = 53


@dataclass(slots=True)
class _Pending:
    event: RequestArrived
    span: RequestSpan
    block_size: int


def recorded_arrivals(run: Run, notes: list[str]) -> Iterator[Arrival]:
    """In the order in which they came, times since the first one; what lives at once is held, no more."""
    timeline = Timeline(keep_spans=True, keep_histories=False)
    pending: deque[_Pending] = deque()
    first_ns, num_without = -1, 0
    for held in _in_order(run, timeline, pending):
        first_ns = held.event.arrival_ns if first_ns < 0 else first_ns
        num_without += not held.span.num_output_tokens
        yield _arrival(held, max(0, held.event.arrival_ns - first_ns))
    if num_without:
        notes.append(f"{num_without} requests were given no token: they count with what they allowed")
    if timeline.num_gap_entries:
        notes.append(f"{timeline.num_gap_entries} entries are missing, and arrivals may be among them")


def _in_order(run: Run, timeline: Timeline, pending: "deque[_Pending]") -> Iterator[_Pending]:
    for life in run.lives:
        limits = Limits.from_dict(life.header.limits)
        timeline.begin_engine(limits)
        for entry in life.entries():
            timeline.apply(entry)
            event = entry.event
            if isinstance(event, RequestArrived):
                span = timeline.spans.pop(event.request, None)
                if span is not None:
                    pending.append(_Pending(event, span, limits.block_size))
            while pending and pending[0].span.phase is Phase.ENDED:
                yield pending.popleft()
    yield from pending


def _arrival(held: _Pending, at_ns: int) -> Arrival:
    event = held.event
    ids = [int.from_bytes(digest[:7], "little") >> (56 - _ID_BITS) for digest in event.prompt_digests]
    if event.num_prompt_tokens % held.block_size or len(ids) < event.num_prompt_tokens // held.block_size:
        rest = hashlib.blake2b(b"rest %d" % event.request, digest_size=7).digest()
        missing = -(-event.num_prompt_tokens // held.block_size) - len(ids)
        ids += [(int.from_bytes(rest, "little") + place) >> (56 - _ID_BITS) for place in range(missing)]
    return Arrival(
        at_ns,
        event.num_prompt_tokens,
        held.span.num_output_tokens or event.max_output_tokens,
        tenant=event.tenant,
        priority=event.priority,
        max_output_tokens=event.max_output_tokens,
        prefix_ids=tuple(ids),
        tokens_per_id=held.block_size,
        name=event.request_id,
    )
