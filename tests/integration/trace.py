"""A recording as the cases ask about it: each request's life in the order of the stream, and every block's holder.

Positions are the sequences of entries: they order what happened without a clock. A recording can be read while it is
being written; what a case waits for is then looked for again until it is there.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.decisions import (
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
    TokensEmitted,
)
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.reader import Recording
from tests.integration.daemon_process import DaemonProcess

POLL_S = 0.02


@dataclass
class Life:
    """One request.

    arrived_at    position of its arrival
    rows          (position, step, start, count) per step that lists it
    token_steps   the steps that emitted its first token, its second …
    counts        the number of output tokens that each emission named: 1, 2, 3 … unless something is wrong
    token_times   monotonic nanoseconds of these emissions
    admissions    positions
    ends          (position, end record)
    """

    arrival: RequestArrived
    arrived_at: int
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    token_steps: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    token_times: list[int] = field(default_factory=list)
    admissions: list[int] = field(default_factory=list)
    preemptions: list[RequestPreempted] = field(default_factory=list)
    ends: list[tuple[int, RequestFinished | RequestRejected]] = field(default_factory=list)

    @property
    def end(self) -> RequestFinished | RequestRejected:
        """Its one end record."""
        assert len(self.ends) == 1, f"{self.arrival.request_id} has {len(self.ends)} end records"
        return self.ends[0][1]

    @property
    def finish(self) -> RequestFinished:
        """Its one end record, which is no refusal."""
        end = self.end
        assert isinstance(end, RequestFinished), f"{self.arrival.request_id} was refused: {end}"
        return end

    @property
    def ended_at(self) -> int:
        return self.ends[0][0]

    @property
    def steps(self) -> list[int]:
        return [step for _position, step, _start, _count in self.rows]


class Trace:
    """
    entries   all of them, in order
    lives     request_id → Life, in order of arrival
    plans     (position, StepPlanned) of every step
    """

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.lives: dict[str, Life] = {}
        self.plans: list[tuple[int, StepPlanned]] = []
        self._of_number: dict[int, Life] = {}
        for entry in entries:
            if isinstance(entry.event, RequestArrived):
                life = Life(entry.event, entry.sequence)
                self.lives[entry.event.request_id] = self._of_number[entry.event.request] = life
            for decision in entry.decisions:
                self._take(entry, decision)

    def __getitem__(self, request_id: str) -> Life:
        return self.lives[request_id]

    def preemptions(self) -> list[RequestPreempted]:
        return [preemption for life in self.lives.values() for preemption in life.preemptions]

    def _take(self, entry: Entry, decision: object) -> None:
        position = entry.sequence
        match decision:
            case RequestAdmitted():
                self._of_number[decision.request].admissions.append(position)
            case RequestPreempted():
                self._of_number[decision.request].preemptions.append(decision)
            case StepPlanned():
                self.plans.append((position, decision))
                for number, start, count in decision.rows:
                    self._of_number[number].rows.append((position, decision.step, start, count))
            case TokensEmitted():
                for number, num_output_tokens in decision.rows:
                    life = self._of_number[number]
                    life.token_steps.append(decision.step)
                    life.counts.append(num_output_tokens)
                    life.token_times.append(entry.now_ns)
            case RequestFinished() | RequestRejected():
                self._of_number[decision.request].ends.append((position, decision))


def trace_of(daemon: DaemonProcess) -> Trace:
    """What has been recorded so far."""
    return Trace(list(Recording.open(daemon.recording).entries()))


async def until_recorded(daemon: DaemonProcess, is_there: Callable[[Trace], bool], seconds: float = 30.0) -> Trace:
    """Read again and again until `is_there`; the trace that has it."""
    deadline = time.monotonic() + seconds
    while not is_there(trace := trace_of(daemon)):
        assert time.monotonic() < deadline, "what the case waits for was not recorded"
        await asyncio.sleep(POLL_S)
    return trace


async def until_arrived(daemon: DaemonProcess, request_id: str) -> None:
    await until_recorded(daemon, lambda trace: request_id in trace.lives)


async def until_ended(daemon: DaemonProcess, *request_ids: str) -> Trace:
    """The trace once each of these requests has an end record."""
    return await until_recorded(
        daemon, lambda trace: all(name in trace.lives and trace[name].ends for name in request_ids)
    )


def limits_of(daemon: DaemonProcess) -> Limits:
    """As the recording's header has them."""
    return Limits.from_dict(Recording.open(daemon.recording).segments[0].header.limits)


def check_steps(trace: Trace, limits: Limits) -> None:
    """Follow every block table through the stream: whoever gave way is in no row of that pass, all limits are kept.

    Without a prefix cache a block has one holder; in the end nobody holds one.
    """
    tables: dict[int, list[int]] = {}
    for entry in trace.entries:
        gave_way: set[int] = set()
        for decision in entry.decisions:
            match decision:
                case RequestAdmitted():
                    tables[decision.request] = list(decision.block_ids)
                case RequestPreempted():
                    gave_way.add(decision.request)
                    del tables[decision.request]
                case RequestFinished():
                    gave_way.add(decision.request)
                    tables.pop(decision.request, None)
                case StepPlanned():
                    _check_plan(decision, tables, gave_way, limits)
    live = [life for life in trace.lives.values() if not life.ends]
    assert tables == {} or live, f"blocks are held by requests that ended: {tables}"


def _check_plan(plan: StepPlanned, tables: dict[int, list[int]], gave_way: set[int], limits: Limits) -> None:
    for number, block in plan.new_blocks:
        tables[number].append(block)
    listed = [number for number, _start, _count in plan.rows]
    assert len(set(listed)) == len(listed) <= limits.max_num_seqs
    assert not gave_way & {*listed, *[number for number, _block in plan.new_blocks]}
    assert set(listed) <= set(tables)
    assert sum(count for _number, _start, count in plan.rows) <= limits.max_num_batched_tokens
    for number, start, count in plan.rows:
        assert count > 0
        assert start + count <= len(tables[number]) * limits.block_size
    held = [block for table in tables.values() for block in table]
    assert len(set(held)) <= limits.num_kv_blocks
    assert len(set(held)) + plan.num_blocks_free == limits.num_kv_blocks
    if not limits.enable_prefix_caching:
        assert len(set(held)) == len(held), "a block has two holders"
