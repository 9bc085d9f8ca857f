"""Entries → the moments that trace formats write and OpenTelemetry's spans are made of, live and afterwards.

All figures are those of `recorder/timeline.py`; only what lives is held, so a stream of any length can be told. It
must not know any format.
"""

from collections.abc import Iterator
from typing import Any

from engine.core.decisions import (
    PreemptMode,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    StepPlanned,
)
from engine.core.events import ExecutorRestarted, RequestArrived, RequestCancelled, StepCompleted, StepFailed
from engine.core.limits import Limits
from engine.core.vocabulary import Entry, RecordingGap
from recorder.in_turn import InTurn
from recorder.incidents import incident_in
from recorder.request_span import Phase
from recorder.spans.moments import (
    DECODE,
    HANDED_OVER,
    PREEMPTED,
    PREFILL,
    QUEUED,
    SWAPPED,
    Counted,
    Moment,
    Noted,
    Opened,
    StepRan,
)
from recorder.spans.notices import notice_of, plain_fields
from recorder.spans.stretches import Held, Stretches
from recorder.timeline import Timeline


class Telling:
    """`begin_engine` for each engine process, `apply` its entries in order, `finish` when there are no more.

    num_requests, num_steps, num_gap_entries   told so far
    """

    def __init__(self) -> None:
        self._timeline = Timeline(keep_spans=True, keep_histories=False)
        self._lives = Stretches(self._timeline)
        self._planned: tuple[StepPlanned, int, int] | None = None  # with its time and tokens
        self._in_turn = InTurn()
        self._gauges: dict[str, int] = {}
        self._num_flows = 0
        self._engine_number = 0
        self.num_requests = 0
        self.num_steps = 0

    @property
    def num_gap_entries(self) -> int:
        return self._timeline.num_gap_entries

    def begin_engine(self, limits: Limits) -> None:
        """A new engine process begins with an empty core."""
        self._timeline.begin_engine(limits)
        self._engine_number += 1
        self._in_turn.forget()
        self._planned = None

    def apply(self, entry: Entry) -> Iterator[Moment]:
        """What the entry tells; to be read to its end."""
        self._timeline.apply(entry)
        entry = self._in_turn(entry)
        self._lives.sequence = entry.sequence
        yield from self._entry(entry)

    def finish(self) -> Iterator[Moment]:
        """Who still lives is closed at the time of the last entry."""
        for request in list(self._lives.open):
            yield from self._lives.close(request, self._timeline.last_ns or 0)

    def _entry(self, entry: Entry) -> Iterator[Moment]:
        now_ns, event = entry.now_ns, entry.event
        if isinstance(event, RequestArrived):
            yield from self._arrived(event, now_ns)
        elif isinstance(event, StepCompleted | StepFailed):
            yield from self._step_ended(event, now_ns)
        elif isinstance(event, RecordingGap):
            yield from self._gap(event, now_ns)
        elif isinstance(event, ExecutorRestarted):
            yield from self._restarted(now_ns)
        elif isinstance(event, RequestCancelled) and self._lives.has_ended(event.request):
            yield from self._lives.close(event.request, now_ns)  # no engine held it
        for decision in entry.decisions:
            yield from self._decision(decision, now_ns)
        incident = incident_in(entry)
        if incident is not None:
            yield Noted(f"incident: {incident}", now_ns, -1, {"sequence": entry.sequence})
        yield from self._counted(now_ns)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrived(self, event: RequestArrived, now_ns: int) -> Iterator[Moment]:
        span = self._timeline.spans.get(event.request)
        if span is None or (event.request in self._lives.open and self._lives.open[event.request].span is span):
            return  # refused because its number is that of a live one
        if event.request in self._lives.open:
            yield from self._lives.close(event.request, now_ns)
        self.num_requests += 1
        self._lives.open[event.request] = Held(span)
        yield Opened(event.request, event.arrival_ns, event, self._lives.sequence)
        if span.phase is Phase.ENDED:
            yield from self._lives.close(event.request, now_ns)
        else:
            yield from self._lives.begin(event.request, QUEUED, event.arrival_ns, {})

    def _restarted(self, now_ns: int) -> Iterator[Moment]:
        """Whoever the engine before held is lost, or waits until this one takes it over."""
        self._planned = None
        for request in list(self._lives.open):
            if self._lives.has_ended(request):
                yield from self._lives.close(request, now_ns)
            else:
                yield from self._lives.begin(request, HANDED_OVER, now_ns, {})

    def _decision(self, decision: Any, now_ns: int) -> Iterator[Moment]:
        match decision:
            case RequestAdmitted():
                yield from self._lives.end(decision.request, now_ns)
            case RequestPreempted() if decision.request in self._lives.open:
                yield from self._preempted(decision, now_ns)
            case StepPlanned():
                yield from self._step_planned(decision, now_ns)
            case RequestFinished() if decision.request in self._lives.open:
                yield from self._lives.close(decision.request, now_ns)
            case _:
                notice = notice_of(decision, now_ns)
                if notice is not None and (notice.request < 0 or notice.request in self._lives.open):
                    yield notice

    def _preempted(self, decision: RequestPreempted, now_ns: int) -> Iterator[Moment]:
        self._num_flows += 1
        name = SWAPPED if decision.mode == PreemptMode.SWAP else PREEMPTED
        chain = (self._engine_number << 32) + decision.chain + 1
        yield from self._lives.begin(decision.request, name, now_ns, plain_fields(decision), self._num_flows, chain)
        if decision.for_request != decision.request and decision.for_request in self._lives.open:
            values = {"from_request": decision.request}
            yield Noted("gets the room", now_ns, decision.for_request, values, self._num_flows)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step_planned(self, plan: StepPlanned, now_ns: int) -> Iterator[Moment]:
        self._planned = plan, now_ns, sum(count for _request, _start, count in plan.rows)
        for request, start, count in plan.rows:
            held = self._lives.open.get(request)
            if held is None:
                continue
            span = held.span
            if span.num_output_tokens and start == span.num_prompt_tokens + span.num_output_tokens - 1:
                if held.stretch != DECODE:
                    yield from self._lives.begin(request, DECODE, now_ns, {})
            else:
                values = {"step": plan.step, "start": start, "num_tokens": count}
                yield from self._lives.begin(request, PREFILL, now_ns, values)

    def _step_ended(self, event: StepCompleted | StepFailed, now_ns: int) -> Iterator[Moment]:
        planned, self._planned = self._planned, None
        if planned is None or planned[0].step != event.step:
            return  # its plan lies in a gap
        plan, planned_ns, num_tokens = planned
        self.num_steps += 1
        ran = StepRan(plan.step, planned_ns, now_ns, len(plan.rows), num_tokens)
        if isinstance(event, StepFailed):
            yield ran._replace(error=event.error)
        else:
            yield ran._replace(swap_ns=event.swap_ns, execute_ns=event.execute_ns, sample_ns=event.sample_ns)
        for request, _start, _count in plan.rows:
            held = self._lives.open.get(request)
            if held is not None and held.stretch == PREFILL:
                yield from self._lives.end(request, now_ns)
        yield from self._changed({"step time us": (now_ns - planned_ns) // 1_000}, now_ns)

    def _gap(self, gap: RecordingGap, now_ns: int) -> Iterator[Moment]:
        """What went on is not known from here on, until something is told again."""
        self._planned = None
        yield Noted("gap", now_ns, -1, plain_fields(gap))
        for request in list(self._lives.open):
            yield from self._lives.end(request, now_ns)

    def _counted(self, now_ns: int) -> Iterator[Moment]:
        timeline = self._timeline
        values = {
            "running": timeline.num_running,
            "waiting": timeline.num_waiting,
            "free blocks": timeline.num_blocks_free,
            "token budget used": self._planned[2] if self._planned else 0,
        }
        yield from self._changed(values, now_ns)

    def _changed(self, values: dict[str, int], now_ns: int) -> Iterator[Moment]:
        changed = {name: value for name, value in values.items() if self._gauges.get(name) != value}
        if changed:
            self._gauges |= changed
            yield Counted(now_ns, changed)
