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


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """
    span        its life, to its end or the recording's
    life        the place in `Run.lives` of the engine process it came to
    at_ns       its arrival, since the recording's first one
    """

    event: RequestArrived
    span: RequestSpan
    life: int
    block_size: int
    at_ns: int

    def as_arrival(self) -> Arrival:
        event = self.event
        return Arrival(
            self.at_ns,
            event.num_prompt_tokens,
            self.span.num_output_tokens or event.max_output_tokens,
            tenant=event.tenant,
            priority=event.priority,
            max_output_tokens=event.max_output_tokens,
            prefix_ids=self._ids(),
            tokens_per_id=self.block_size,
            name=event.request_id,
        )

    def _ids(self) -> tuple[int, ...]:
        """One for each block; what no digest tells is nobody else's."""
        event = self.event
        num_blocks = -(-event.num_prompt_tokens // self.block_size)
        ids = [_id(digest) for digest in event.prompt_digests[:num_blocks]]
        rest = [_id(_own_digest(self.life, event.request, place)) for place in range(len(ids), num_blocks)]
        return tuple(ids + rest)


def recorded_requests(run: Run, notes: list[str]) -> Iterator[RecordedRequest]:
    """In the order in which they came; what lives at once is held, no more. `notes` is told what is not sure."""
    timeline = Timeline(keep_spans=True, keep_histories=False)
    num_without = 0
    for recorded in _in_order(run, timeline):
        num_without += not recorded.span.num_output_tokens
        yield recorded
    if num_without:
        notes.append(f"{num_without} requests were given no token: they count with what they allowed")
    if timeline.num_gap_entries:
        notes.append(f"{timeline.num_gap_entries} entries are missing, and arrivals may be among them")


def recorded_arrivals(run: Run, notes: list[str]) -> Iterator[Arrival]:
    """The same, as a trace tells them."""
    return (recorded.as_arrival() for recorded in recorded_requests(run, notes))


def _in_order(run: Run, timeline: Timeline) -> Iterator[RecordedRequest]:
    pending: deque[RecordedRequest] = deque()
    first_ns = -1
    for number, life in enumerate(run.lives):
        limits = Limits.from_dict(life.header.limits)
        timeline.begin_engine(limits)
        for entry in life.entries():
            timeline.apply(entry)
            event = entry.event
            span = timeline.spans.pop(event.request, None) if isinstance(event, RequestArrived) else None
            if span is not None:
                assert isinstance(event, RequestArrived)
                first_ns = event.arrival_ns if first_ns < 0 else first_ns
                at_ns = max(0, event.arrival_ns - first_ns)
                pending.append(RecordedRequest(event, span, number, limits.block_size, at_ns))
            while pending and pending[0].span.phase is Phase.ENDED:
                yield pending.popleft()
    yield from pending


def _id(digest: bytes) -> int:
    """Of all its bytes: a simulation's digests are no hashes, and begin alike."""
    return int.from_bytes(hashlib.blake2b(digest, digest_size=7).digest(), "little") >> (56 - _ID_BITS)


def _own_digest(life: int, request: int, place: int) -> bytes:
    return hashlib.blake2b(b"%d %d %d" % (life, request, place), digest_size=8).digest()
