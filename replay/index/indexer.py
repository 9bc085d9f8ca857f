"""Entries → rows: hands each event and decision to those that make rows of it, in order.

It reads what was recorded and decides nothing; the core is asked only for what a keyframe holds behind a gap.
"""

import json
from collections.abc import Callable
from typing import Any

from engine.core.decisions import (
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
    TokensEmitted,
)
from engine.core.events import KVMismatch, PolicyChanged, RequestArrived, StepCompleted, StepFailed, StepLaunched
from engine.core.kv_mismatch import taken_out
from engine.core.limits import Limits
from engine.core.vocabulary import CoreKeyframe, Entry, RecordingClosed, RecordingGap
from recorder.in_turn import InTurn
from recorder.timeline import Timeline
from replay.index.block_writes import BlockWrites
from replay.index.decision_rows import tell_decision
from replay.index.holdings import Holdings
from replay.index.marks import tell_mark
from replay.index.moment import Moment
from replay.index.request_rows import RequestRows
from replay.index.resuming import Resume
from replay.index.sink import Sink
from replay.index.slices import Slices
from replay.index.step_rows import StepRows
from replay.lives import Life
from replay.own_policy import thawed_core
from replay.refusal import CannotCompare


class Indexer:
    """One after the other: `begin_life`, then `read` for each of its entries. `tell_open` for what is under way."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.moment = Moment()
        self._timeline = Timeline(keep_spans=True, keep_histories=False)
        self._requests = RequestRows(self._timeline, sink)
        self._steps = StepRows(self.moment, sink)
        self._slices = Slices(self.moment, sink)
        self._holdings = Holdings(self.moment, sink)
        self._writes = BlockWrites(self.moment, sink)
        self._in_turn = InTurn()
        self._held_step = -1
        self._is_lost = False
        self._expected: int | None = None
        self._life: Life | None = None
        self._on_decision: dict[type[Any], Callable[[Any], None]] = {
            RequestAdmitted: self._on_admitted,
            RequestPreempted: self._on_preempted,
            RequestFinished: self._on_finished,
            StepPlanned: self._on_planned,
            TokensEmitted: self._on_emitted,
        }

    def begin_life(self, number: int, life: Life, resumed: Resume | None = None) -> None:
        """`resumed`: not from its beginning, but with an entry from which on all that lives is known."""
        self._end_life()
        limits = Limits.from_dict(life.header.limits)
        moment = self.moment
        moment.life, moment.sequence, moment.step, moment.policy = number, -1, 0, limits.scheduling_policy
        self._in_turn.forget()
        self._held_step = -1
        self._life, self._is_lost, self._expected = life, not life.header.starts_fresh, life.header.first_sequence
        if resumed is not None:
            self._is_lost, self._expected = resumed.is_lost, None
            moment.step, moment.policy = resumed.step, resumed.policy
        self._timeline.begin_engine(limits)
        self._steps.begin_life(limits.max_num_batched_tokens)
        self._writes.begin_life(limits.block_size)

    def read(self, entry: Entry) -> None:
        event, decisions = entry.event, entry.decisions
        moment = self.moment
        if isinstance(event, CoreKeyframe):
            self._on_keyframe(entry, event)
            return
        if isinstance(event, RecordingClosed):
            return
        moment.sequence, moment.now_ns = entry.sequence, entry.now_ns
        self._watch_for_holes(entry)
        recorded, entry = entry, self._in_turn(entry)
        decisions = entry.decisions
        if decisions and type(decisions[-1]) is StepPlanned:
            moment.step = decisions[-1].step
        self._on_event(entry)
        self._timeline.apply(recorded)
        for at, decision in enumerate(decisions):
            tell_decision(self._sink, moment, at, decision)
            tell_mark(self._sink, moment, decision)
            if on_decision := self._on_decision.get(type(decision)):
                on_decision(decision)
        if decisions and type(decisions[-1]) is StepPlanned:
            moment.step += 1
        elif type(event) is StepLaunched and self._in_turn.ahead is not None and not self._is_lost:
            self._hold(self._in_turn.ahead)
        if len(self._timeline.spans) > len(self._timeline.live):
            self._requests.tell_ended()

    def tell_open(self) -> None:
        """Rows of what is under way, as far as it has come."""
        self._requests.tell_open()
        self._steps.tell_open()
        self._slices.tell_open()
        self._writes.tell_open()

    def resume(self) -> Resume:
        """Where it stands."""
        moment = self.moment
        at = (moment.life, moment.sequence)
        since = [at, *self._requests.arrivals.values()]
        if self._steps.planned_sequence is not None:
            since.append((moment.life, self._steps.planned_sequence))
        return Resume(*at, moment.now_ns, moment.step, moment.policy, self._is_lost, *min(since))

    def stands_at(self, resume: Resume) -> bool:
        """It has read up to there, and no further."""
        return (self.moment.life, self.moment.sequence) == (resume.life, resume.sequence)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_event(self, entry: Entry) -> None:
        event = entry.event
        tell_mark(self._sink, self.moment, event)
        if isinstance(event, RequestArrived):
            self._on_arrived(event, entry)
        elif isinstance(event, StepCompleted | StepFailed):
            self._writes.on_result()
            self._slices.on_result()
            self._steps.on_result(event if isinstance(event, StepCompleted) else None)
        elif isinstance(event, PolicyChanged):
            self.moment.policy = event.policy
        elif isinstance(event, KVMismatch):
            for request in taken_out(entry.decisions):
                self._writes.take_out(request)

    def _on_arrived(self, event: RequestArrived, entry: Entry) -> None:
        refusal = entry.decisions[0] if entry.decisions else None
        self._requests.on_arrived(event.request, self.moment.life, entry.sequence)
        if type(refusal) is not RequestRejected or refusal.request != event.request:
            self._slices.on_queued(event.request, event.num_prompt_tokens, event.num_output_tokens)

    def _on_keyframe(self, entry: Entry, keyframe: CoreKeyframe) -> None:
        life = self.moment.life
        self._sink.add("keyframes", life, entry.sequence, keyframe.num_steps, entry.now_ns)
        if not self._is_lost or self._life is None:
            return
        try:
            core = thawed_core(self._life.header, keyframe)
        except CannotCompare:
            return
        self._is_lost = False
        self.moment.step, self.moment.policy = keyframe.num_steps, core.limits.scheduling_policy
        self._holdings.restore({number: request.block_table for number, request in core.requests.items()})
        for number, request in core.requests.items():
            self._slices.num_known[number] = (request.num_prompt_tokens, request.num_output_tokens)

    def _watch_for_holes(self, entry: Entry) -> None:
        event, expected = entry.event, self._expected
        if isinstance(event, RecordingGap):
            self._lose()
            self._expected = event.first_sequence + event.num_entries
            return
        if expected is not None and entry.sequence != expected:
            self._lose()
            cause = "a hole in the sequence"
            tell_mark(self._sink, self.moment, RecordingGap(expected, entry.sequence - expected, cause))
        self._expected = entry.sequence + 1

    def _lose(self) -> None:
        self._is_lost = True
        self._writes.end_all()
        self._holdings.clear()

    def _end_life(self) -> None:
        self._slices.end_all()
        self._writes.end_all()
        self._holdings.clear()
        if self.moment.life:
            self._sink.end_thrashing(self.moment.life, self.moment.now_ns)

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_admitted(self, decision: RequestAdmitted) -> None:
        self._steps.on_admitted(decision)
        self._slices.on_admitted(decision.request)
        if not self._is_lost:
            self._holdings.on_admitted(decision)
            self._writes.on_admitted(decision)

    def _on_preempted(self, decision: RequestPreempted) -> None:
        self._slices.on_preempted(decision)
        self._give_up(decision.request)

    def _on_finished(self, decision: RequestFinished) -> None:
        self._slices.on_finished(decision.request)
        self._give_up(decision.request)

    def _give_up(self, request: int) -> None:
        table = self._holdings.tables.get(request, [])
        self._writes.given_up(table)
        self._holdings.give_up(request)

    def _on_planned(self, plan: StepPlanned) -> None:
        counts = self._slices.on_planned(plan)
        self._steps.on_planned(plan, self._in_turn.plan_sequence, *counts)
        if not self._is_lost:
            self._hold(plan)
            self._writes.on_planned(plan, self._holdings.tables)

    def _hold(self, plan: StepPlanned) -> None:
        """Once: whoever holds what is known as soon as the step is planned, also where that is before its turn."""
        if plan.step != self._held_step:
            self._held_step = plan.step
            self._holdings.on_planned(plan)

    def _on_emitted(self, decision: TokensEmitted) -> None:
        self._slices.on_emitted(decision.rows)


def life_values(number: int, life: Life) -> tuple[Any, ...]:
    """The row of `lives`."""
    header, limits = life.header, Limits.from_dict(life.header.limits)
    return (
        *(number, header.created_now_ns, header.created_wall_ns, header.first_sequence, limits.scheduling_policy),
        *(limits.num_kv_blocks, limits.block_size, limits.max_num_batched_tokens, limits.max_num_seqs),
        json.dumps(limits.to_dict()),
        *(header.first_sequence - 1, header.created_now_ns),
    )
