"""A scenario performed again: the core on virtual time, an executor beside it, every entry as an engine makes it.

The loop is that of `engine/loop.py`: who comes or leaves while a step is executed is handled before its result. What
the core or the executor raises ends the performance as it ends an engine, and stands in its last entry.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import Decision, RequestRejected, StepPlanned
from engine.core.events import Event, RequestArrived, StepCompleted, StepFailed, StepLaunched, TimerFired
from engine.core.limits import MAX_ERROR_CHARS, Limits
from engine.core.scheduler import Core
from engine.core.step_time import shape_of
from engine.core.vocabulary import Entry
from recorder.header import Header
from replay.shrink.scenario import Caller, Scenario
from replay.shrink.step_times import StepTimes

NO_END = "no end: steps are planned and nothing comes of them"
Wait = Callable[[int], None]


class Executor(Protocol):
    """What carries decisions out in a performance, by counts alone or with a model."""

    def arrive(self, caller: Caller) -> RequestArrived:
        """Hold the caller's request; the event for the core."""
        ...

    def carry_out(self, decision: Decision) -> None: ...

    def execute(self, plan: StepPlanned) -> tuple[StepCompleted, tuple[TokenOutput, ...]]:
        """May raise: the step has failed. Its times are of no account."""
        ...


@dataclass(slots=True)
class Performed:
    """
    entries     as an engine would have recorded them
    prompts     request → contents, and tokens: step → outputs; empty when only counts were performed
    error       what ended the engine; "" when all came to an end
    """

    header: Header
    limits: Limits
    entries: list[Entry] = field(default_factory=list)
    prompts: dict[int, RequestContents] = field(default_factory=dict)
    tokens: dict[int, tuple[TokenOutput, ...]] = field(default_factory=dict)
    error: str = ""


def perform(scenario: Scenario, executor: Executor, core: Core, wait: Wait | None = None) -> Performed:
    """Serve the scenario to its end.

    core   fresh, with the scenario's limits
    wait   is told how long each stretch of virtual time takes, for who wants it to pass; it passes at once without
    """
    rehearsal = _Rehearsal(scenario, executor, core, wait)
    with suppress(_EngineDied):
        rehearsal.run()
    return rehearsal.performed


class _EngineDied(Exception):
    """The loop is left; what happened is in `Performed.error`."""


class _Rehearsal:
    def __init__(self, scenario: Scenario, executor: Executor, core: Core, wait: Wait | None) -> None:
        self.performed = Performed(scenario.header, scenario.limits)
        self._executor = executor
        self._core = core
        self._wait = wait
        self._times = StepTimes(scenario.steps)
        self._most_steps = scenario.most_steps
        self._due = deque(_in_order(scenario))
        self._now_ns = self._due[0][0] if self._due else 0
        self._plan: StepPlanned | None = None
        self._ahead: StepPlanned | None = None
        self._num_steps = 0

    def run(self) -> None:
        while self._plan is not None or self._due:
            if self._plan is None:
                self._advance_to(self._due[0][0])
                self._take(*self._due.popleft()[1:])
            elif self._num_steps > self._most_steps:
                self.performed.error = NO_END
                return
            else:
                self._run_step(self._plan)

    def _advance_to(self, at_ns: int) -> None:
        if self._wait is not None and at_ns > self._now_ns:
            self._wait(at_ns - self._now_ns)
        self._now_ns = max(self._now_ns, at_ns)

    def _take(self, caller: Caller | None, event: Event | None) -> None:
        if caller is None:
            assert event is not None
            self._handle(event)
            return
        with self._dying():
            arrived = self._executor.arrive(caller)
        if caller.contents is not None:
            self.performed.prompts[caller.number] = caller.contents
        decisions = self._handle(arrived)
        if decisions and isinstance(decisions[0], RequestRejected):
            self.performed.prompts.pop(caller.number, None)

    def _run_step(self, plan: StepPlanned) -> None:
        self._num_steps += 1
        if self._core.limits.async_scheduling:
            self._handle(StepLaunched(plan.step))
        self._plan, self._ahead = self._ahead, None
        time = self._times.of(plan.step, shape_of(plan.rows))
        event: StepCompleted | StepFailed
        outputs: tuple[TokenOutput, ...] = ()
        try:
            completed, outputs = self._executor.execute(plan)
            event = completed._replace(execute_ns=time.execute_ns, sample_ns=time.sample_ns, swap_ns=time.swap_ns)
        except Exception as error:  # as in the engine's loop: whatever a kernel raises ends these requests only
            event = StepFailed(plan.step, f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])
        if time.error:
            event, outputs = StepFailed(plan.step, time.error), ()
        ends_ns = self._now_ns + time.step_ns
        while self._due and self._due[0][0] <= ends_ns:
            at_ns, caller, notice = self._due.popleft()
            self._advance_to(at_ns)
            self._take(caller, notice)
        self._advance_to(ends_ns)
        if 0 < self._core.next_timer_ns <= self._now_ns:
            self._handle(TimerFired())
        if outputs:
            self.performed.tokens[plan.step] = outputs
        self._handle(event)

    def _handle(self, event: Event) -> list[Decision]:
        entries = self.performed.entries
        decisions: list[Decision] = []
        with self._dying(event):
            decisions = self._core.handle(event, self._now_ns)
        entries.append(Entry(len(entries), self._now_ns, event, tuple(decisions)))
        for decision in decisions:
            if isinstance(decision, StepPlanned) and isinstance(event, StepLaunched):
                self._ahead = decision
                continue
            if isinstance(decision, StepPlanned):
                self._plan = decision
                continue
            with self._dying():
                self._executor.carry_out(decision)
        return decisions

    @contextmanager
    def _dying(self, event: Event | None = None) -> Iterator[None]:
        """What is raised within ends the engine; `event` is what the core was to decide on, and is recorded."""
        try:
            yield
        except Exception as error:
            if event is not None:
                self.performed.entries.append(Entry(len(self.performed.entries), self._now_ns, event, ()))
            self.performed.error = f"{type(error).__name__}: {error}"
            raise _EngineDied from error


def _in_order(scenario: Scenario) -> list[tuple[int, Caller | None, Event | None]]:
    """Arrivals, cancels and notices by time; what comes at one time keeps the order of the callers."""
    due: list[tuple[int, Caller | None, Event | None]] = []
    for caller in scenario.callers:
        due.append((caller.at_ns, caller, None))
        due += [(caller.at_ns + max(0, delay_ns), None, event) for delay_ns, event in caller.cancels]
    due += [(at_ns, None, event) for at_ns, event in scenario.notices]
    return sorted(due, key=lambda item: item[0])
