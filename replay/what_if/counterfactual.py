"""The loop of a counterfactual: recorded inputs meet another core, or the same one again, on virtual time.

As in the engine's loop, what came while a step is executed is handled before its result. A run may first follow the
recording, event by event at its time, for as long as the core does the same on it as the recorded one: until then
nothing is different, so nothing need be predicted. Who executes steps is handed in.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from engine.clock import Clock
from engine.core.decisions import Decision, RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import Event, RequestArrived, StepCompleted, StepFailed, StepLaunched, TimerFired
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from replay.done import first_done_otherwise
from replay.refusal import CannotCompare
from replay.what_if.inputs import Input, is_input

Reader = Callable[[Entry], None]


class Planned(NamedTuple):
    """A step under way: what it computes, since when, and the KV blocks copied from and to the host before it."""

    plan: StepPlanned
    began_ns: int
    num_copied_blocks: int


class Steps(Protocol):
    """Carries out decisions, in truth or in counts, and makes time pass."""

    @property
    def clock(self) -> Clock: ...

    def wait_until(self, at_ns: int) -> None:
        """Nothing is to be done before."""
        ...

    def arrived(self, event: RequestArrived) -> RequestArrived:
        """Hold the request; the event as the core is to see it."""
        ...

    def carry_out(self, decision: Decision) -> None:
        """Any decision but StepPlanned."""
        ...

    def execute(self, planned: Planned, core: Core) -> StepCompleted | StepFailed:
        """The step's result; the clock stands at its end."""
        ...


class Fork(NamedTuple):
    """Where the core first did something else on an equal event.

    expected, got   the recorded decision and the one made now; None where one side did nothing more
    """

    sequence: int
    now_ns: int
    event: Event
    expected: Any
    got: Any


class Counterfactual:
    """One core and its inputs; `readers` get every entry. `run` to the end, or `follow` first."""

    def __init__(self, core: Core, steps: Steps, inputs: Sequence[Input], readers: Sequence[Reader]) -> None:
        self.core = core
        self._steps = steps
        self._inputs = inputs
        self._readers = readers
        self._num_taken = 0
        self._num_entries = 0
        self._num_copied = 0
        self._planned: Planned | None = None
        self._ahead: Planned | None = None  # planned while that one is executed

    def follow(self, entries: Iterable[Entry]) -> Fork | None:
        """Handle the entries that the inputs are from, as long as the core does the same; None: it did to the end."""
        for entry in entries:
            self._num_taken += is_input(entry)
            self._steps.wait_until(entry.now_ns)
            event: Any = entry.event
            decisions = self._handle(event)
            differing = first_done_otherwise(entry.decisions, tuple(decisions))
            if differing is not None:
                return Fork(entry.sequence, entry.now_ns, event, *differing)
        return None

    def run(self, end_ns: int, open_ended: frozenset[int]) -> None:
        """To the last end. From `end_ns` on nobody waits for those whose end is not known."""
        while True:
            if self._planned is not None:
                if self._steps.clock.now_ns() >= end_ns and self._only(open_ended):
                    return
                self._run_step(self._planned)
            elif self._num_taken < len(self._inputs):
                self._steps.wait_until(self._inputs[self._num_taken].at_ns)
                self._take_inputs()
            else:
                return

    def _only(self, open_ended: frozenset[int]) -> bool:
        return self._num_taken == len(self._inputs) and all(number in open_ended for number in self.core.requests)

    def _run_step(self, planned: Planned) -> None:
        if self.core.limits.async_scheduling and self._ahead is None:
            self._handle(StepLaunched(planned.plan.step))
        result = self._steps.execute(planned, self.core)
        self._take_inputs()
        if 0 < self.core.next_timer_ns <= self._steps.clock.now_ns():
            self._handle(TimerFired())
        self._handle(result)

    def _take_inputs(self) -> None:
        """All that is there by now."""
        now_ns = self._steps.clock.now_ns()
        while self._num_taken < len(self._inputs) and self._inputs[self._num_taken].at_ns <= now_ns:
            event = self._inputs[self._num_taken].event
            self._num_taken += 1
            self._handle(self._steps.arrived(event) if isinstance(event, RequestArrived) else event)

    def _handle(self, event: Event) -> list[Decision]:
        now_ns = self._steps.clock.now_ns()
        try:
            decisions = self.core.handle(event, now_ns)
        except Exception as error:  # whatever it is, it ends the run here
            raise CannotCompare(
                f"the core raised on {type(event).__name__} after {self._num_entries} entries: "
                f"{type(error).__name__}: {error}",
                "see whether the recording still checks: reprise check",
            ) from error
        entry = Entry(self._num_entries, now_ns, event, tuple(decisions))
        self._num_entries += 1
        if isinstance(event, StepCompleted | StepFailed):
            self._planned, self._num_copied = self._ahead and self._ahead._replace(began_ns=now_ns), 0
            self._ahead = None
        for decision in decisions:
            if isinstance(decision, StepPlanned) and isinstance(event, StepLaunched):
                self._ahead = Planned(decision, now_ns, self._num_copied)
                continue
            if isinstance(decision, StepPlanned):
                self._planned = Planned(decision, now_ns, self._num_copied)
                continue
            if isinstance(decision, RequestAdmitted | RequestPreempted):
                self._num_copied += len(decision.host_blocks)
            self._steps.carry_out(decision)
        for read in self._readers:
            read(entry)
        return decisions
