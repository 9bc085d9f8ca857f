"""One request's story: every event and decision that concerns it, in order, with the reasons it was decided on.

Of a step only the request's own row is told. It reads entries and compares nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from engine.core.decisions import RequestDeferred, RequestPreempted, StepPlanned, TokensEmitted
from engine.core.events import ExecutorRestarted, KVMismatch, RequestArrived, StepCompleted, StepFailed
from engine.core.vocabulary import Entry
from replay.lives import Life, Run
from replay.refusal import CannotCompare
from replay.transcript import describe, logprob, name_of


class Line(NamedTuple):
    """One event or decision about the request.

    time_ns    since the recording's opening
    decided    False for an event
    """

    sequence: int
    time_ns: int
    record: str
    decided: bool
    text: str


def find_request(run: Run, name: str) -> RequestArrived:
    """By the client's id first, else by number; of several the last one. Raises CannotCompare when there is none."""
    named = [arrived for life in run.lives for arrived in life.arrivals_named(name)]
    numbered = [] if named or not name.isdecimal() else [*_arrivals_of(run, int(name))]
    found = named or numbered
    if not found:
        raise CannotCompare(f"no request {name!r} arrived in this recording", "reprise show REC --requests lists them")
    return found[-1]


def _arrivals_of(run: Run, request: int) -> Iterator[RequestArrived]:
    for life in run.lives:
        for entry in life.entries_about(request):
            if isinstance(entry.event, RequestArrived) and entry.event.request == request:
                yield entry.event


def story(run: Run, request: int) -> Iterator[Line]:
    """All that concerns the request, from its arrival to its end; a restart that lost it included."""
    for life in run.lives:
        yield from story_in(life, life.entries_about(request), request)


def story_in(life: Life, entries: Iterable[Entry], request: int) -> Iterator[Line]:
    """The same of one engine process; `entries`: those of it that concern the request, others among them or not."""
    planned: dict[int, StepPlanned] = {}  # the two latest
    for entry in entries:
        yield from _event_lines(entry, life, request, planned)
        for decision in entry.decisions:
            text = _about(decision, request)
            if text is not None:
                yield Line(entry.sequence, entry.now_ns - life.opened_ns, name_of(decision), True, text)
            if isinstance(decision, StepPlanned):
                planned[decision.step] = decision
                planned.pop(decision.step - 2, None)


def _event_lines(entry: Entry, life: Life, request: int, planned: Mapping[int, StepPlanned]) -> Iterator[Line]:
    event = entry.event
    text: str | None
    if isinstance(event, StepFailed):
        plan = planned.get(event.step)
        text = event.error if plan and any(row[0] == request for row in plan.rows) else None
    else:
        text = _about(event, request)
    if text is not None:
        yield Line(entry.sequence, entry.now_ns - life.opened_ns, name_of(event), False, text)


def _about(record: Any, request: int) -> str | None:
    """What the record says about the request; None when it does not concern it."""
    match record:
        case StepPlanned():
            return _own_row(record, request)
        case StepCompleted():
            return _own_result(record, request)
        case TokensEmitted():
            counts = [count for number, count in record.rows if number == request]
            return f"output token {counts[0]}" if counts else None
        case ExecutorRestarted():
            return _after_death(record, request)
        case KVMismatch() if request in (record.writer, record.request, *record.readers):
            return describe(record)
        case RequestPreempted() if record.request != request and record.for_request == request:
            return f"request {record.request} gives way to it: {record.reason}, {record.num_blocks_freed} blocks freed"
        case RequestDeferred() if record.request == request and record.behind < 0:
            return (
                f"{record.reason}: needs {record.num_blocks_needed} blocks, {record.num_blocks_free} are free; "
                f"the reason before lasted {record.num_passes} passes"
            )
    return describe(record) if getattr(record, "request", None) == request else None


def _after_death(restarted: ExecutorRestarted, request: int) -> str | None:
    for number, num_output_tokens in restarted.handed_over:
        if number == request:
            return f"the engine that held it died: handed over with {num_output_tokens} output tokens delivered"
    if request in restarted.blamed:
        return "the engine died on it again: it is not tried any more"
    return "the engine that held it died" if any(lost[0] == request for lost in restarted.lost) else None


def _own_row(planned: StepPlanned, request: int) -> str | None:
    rows = [(start, count) for number, start, count in planned.rows if number == request]
    if not rows:
        return None
    start, count = rows[0]
    blocks = [block for number, block in planned.new_blocks if number == request]
    new = f", new blocks {blocks}" if blocks else ""
    others = len(planned.rows) - 1
    return f"step {planned.step}: tokens {start} to {start + count - 1}{new}, beside {others} other requests"


def _own_result(completed: StepCompleted, request: int) -> str | None:
    for number, flag, digest, bits in completed.emitted:
        if number == request:
            end = f", {flag}" if flag else ""
            return f"step {completed.step}: emitted, hidden {digest:016x}, log-probability {logprob(bits):.6g}{end}"
    return None
