"""A recorded life as a load: who came when, what each answer was, and what the executed steps took.

What came from outside (arrivals, cancels, changes of policy, a drain) comes again, at the time at which it was there to
be handled; what the engine produced is kept as answers and step samples. It decides nothing.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, NamedTuple

from engine.core.decisions import (
    FinishReason,
    RejectReason,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
)
from engine.core.events import (
    FinishFlag,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
    StepLaunched,
    TimerFired,
)
from engine.core.limits import Limits
from engine.core.step_time import StepShape, shape_of
from engine.core.vocabulary import Entry
from recorder.in_turn import InTurn
from replay.stretch import UnderWay
from replay.what_if.inputs import Handled, Input, is_input, placed

_UNSEEN = (0, 0)
_OWN_FLAGS = {FinishReason.STOP: FinishFlag.STOP, FinishReason.FAILED: FinishFlag.ERROR}


class StepSample(NamedTuple):
    """An executed step: total_ns from its plan to its result, of which execute_ns, sample_ns and swap_ns were told."""

    began_ns: int
    shape: StepShape
    total_ns: int
    execute_ns: int
    sample_ns: int
    swap_ns: int
    num_copied_blocks: int


@dataclass(slots=True)
class Answer:
    """What a request's output was.

    num_tokens    how many tokens it had when it ended
    flag          how it ends there: STOP or ERROR; NONE when it goes on to what its client allows, or to its cancel
    has_ended     it ended in the recording, in whatever way
    is_guessed    it never came to an end of its own, so `num_tokens` is the median of those that did
    digests       (hidden digest, log-probability bits) per output token
    blocks        block index → digest, of the blocks that its output filled
    """

    num_prompt_tokens: int
    num_tokens: int = 0
    flag: FinishFlag = FinishFlag.NONE
    has_ended: bool = False
    is_guessed: bool = False
    digests: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[int, bytes] = field(default_factory=dict)


class RecordedLoad:
    """
    inputs       what came from outside, in the order in which they were handled, times not falling
    answers      by request
    samples      in order of time
    first_ns, last_ns   of its entries; 0 of none
    num_own_findings    events that the engine came upon by itself: they are not predicted
    """

    def __init__(self, limits: Limits, entries: Iterable[Entry], under_way: UnderWay | None = None) -> None:
        """`under_way`: before the entries; they arrive first."""
        self.answers: dict[int, Answer] = {}
        self.samples: list[StepSample] = []
        self.first_ns = self.last_ns = 0
        self.num_own_findings = 0
        self._has_begun = False
        self._block_size = limits.block_size
        self._in_turn = InTurn()
        self._plan: StepPlanned | None = None
        self._plan_ns = 0
        self._num_copied = 0
        self._refused: set[int] = set()
        self._handled: list[Handled] = []
        self._lacks_beginning = False  # of the step under way
        first = [] if under_way is None else self._begin_at(under_way)
        for entry in entries:
            self._read(entry)
        self.inputs = first + placed(self._handled)
        self._guess_lengths()

    def _begin_at(self, under_way: UnderWay) -> list[Input]:
        self.first_ns = self.last_ns = under_way.now_ns
        self._has_begun = True
        self._plan, self._plan_ns, self._lacks_beginning = under_way.plan, under_way.now_ns, True
        for arrived in under_way.arrivals:
            self._expect(arrived)
            num_prompt_blocks = arrived.num_prompt_tokens // self._block_size
            filled = under_way.filled[arrived.request]
            self.answers[arrived.request].blocks.update(enumerate(filled, num_prompt_blocks))
        for number, _start, _count in under_way.plan.rows if under_way.plan else ():
            self.answers.setdefault(number, Answer(0, has_ended=True))  # it ended while the step was computed
        return [Input(under_way.now_ns, arrived) for arrived in under_way.arrivals]

    def _expect(self, event: RequestArrived) -> None:
        handed_over = [_UNSEEN] * event.num_output_tokens  # an engine before this one emitted them
        self.answers.setdefault(event.request, Answer(event.num_prompt_tokens, digests=handed_over))

    @property
    def num_guessed(self) -> int:
        return sum(answer.is_guessed for answer in self.answers.values())

    @property
    def open_ended(self) -> frozenset[int]:
        """Requests whose end the recording does not hold."""
        return frozenset([number for number, answer in self.answers.items() if not answer.has_ended])

    def _read(self, recorded: Entry) -> None:
        entry = self._in_turn(recorded)
        self.first_ns, self.last_ns = (self.first_ns if self._has_begun else entry.now_ns), entry.now_ns
        self._has_begun = True
        event = entry.event
        if isinstance(event, RequestArrived):
            self._expect(event)
        if is_input(entry):
            self._handled.append(Handled(entry.now_ns, self._plan_ns if self._plan else -1, event))  # type: ignore[arg-type]  # an input is an Event
        elif isinstance(event, StepCompleted | StepFailed):
            if isinstance(event, StepCompleted) and self._plan is not None:
                self._take_result(self._plan, event, entry.now_ns)
            self._plan, self._num_copied, self._lacks_beginning = None, 0, False
        elif not isinstance(event, RequestCancelled | TimerFired | StepLaunched):
            self.num_own_findings += 1
        for decision in entry.decisions:
            self._take_decision(decision, entry.now_ns)

    def _take_result(self, plan: StepPlanned, event: StepCompleted, now_ns: int) -> None:
        times = (now_ns - self._plan_ns, event.execute_ns, event.sample_ns, event.swap_ns)
        if not self._lacks_beginning:
            self.samples.append(StepSample(self._plan_ns, shape_of(plan.rows), *times, self._num_copied))
        for number, _flag, hidden_digest, logprob_bits in event.emitted:
            self.answers[number].digests.append((hidden_digest, logprob_bits))
        filled: dict[int, deque[bytes]] = {}
        for number, digest in event.filled:
            filled.setdefault(number, deque()).append(digest)
        for number, start, count in plan.rows:
            reported = filled.get(number)
            if not reported:
                continue
            answer = self.answers[number]
            first = max(start // self._block_size, answer.num_prompt_tokens // self._block_size)
            for index in range(first, (start + count) // self._block_size):
                if reported:
                    answer.blocks.setdefault(index, reported.popleft())

    def _take_decision(self, decision: Any, now_ns: int) -> None:
        if isinstance(decision, StepPlanned):
            self._plan, self._plan_ns = decision, now_ns
        elif isinstance(decision, RequestFinished) and decision.request in self.answers:
            answer = self.answers[decision.request]
            answer.num_tokens, answer.has_ended = decision.num_output_tokens, True
            answer.flag = _OWN_FLAGS.get(decision.reason, FinishFlag.NONE)
            if decision.reason == FinishReason.EXPIRED:
                self._refused.add(decision.request)
        elif isinstance(decision, RequestRejected) and decision.reason != RejectReason.DUPLICATE_REQUEST:
            self._refused.add(decision.request)
        elif isinstance(decision, RequestAdmitted | RequestPreempted):
            self._num_copied += len(decision.host_blocks)

    def _guess_lengths(self) -> None:
        """For those who were refused or gave up waiting: they may be served now."""
        known = [answer.num_tokens for answer in self.answers.values() if answer.has_ended and answer.num_tokens]
        for number in self._refused:
            answer = self.answers[number]
            answer.num_tokens, answer.flag = median_low(known) if known else 1, FinishFlag.STOP
            answer.has_ended = answer.is_guessed = True
