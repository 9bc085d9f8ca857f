"""The loop of a simulation: who arrives while a step is executed is handled before its result, as in an engine.

Virtual time advances by what the executor says a step took, and jumps to the next arrival when there is nothing to do.
"""

from collections.abc import Callable, Sequence

from engine.clock import ManualClock
from engine.core.decisions import RequestAdmitted, RequestFinished, RequestPreempted, RequestRejected, StepPlanned
from engine.core.events import CancelCause, Event, RequestArrived, RequestCancelled, StepCompleted, StepLaunched
from engine.core.limits import Limits
from engine.core.policies.interface import PolicyFactory
from engine.core.policies.registry import make_policy
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from replay.simulate.arrivals import Arrival
from replay.simulate.executor import CountingExecutor
from replay.simulate.injected import SimulatedFaults

_SAMPLING = SamplingParams()
Reader = Callable[[Entry], None]


class Simulation:
    """One core serving `arrivals`, which are in order of time, to their ends; `readers` get every entry."""

    def __init__(
        self,
        limits: Limits,
        arrivals: Sequence[Arrival],
        executor: CountingExecutor,
        readers: Sequence[Reader],
        make_policy: PolicyFactory = make_policy,
        inject: Sequence[str] = (),
    ) -> None:
        """`inject` names faults, as `engine/injection.py` reads them."""
        self.core = Core(limits, make_policy)
        self.clock = ManualClock()
        self._arrivals = arrivals
        self._executor = executor
        self.readers = list(readers)
        self._num_arrived = 0
        self._num_entries = 0
        self._plan: StepPlanned | None = None
        self._ahead: StepPlanned | None = None
        self.faults = SimulatedFaults(inject, self.clock) if inject else None

    def run(self, until_ns: int | None = None) -> None:
        """To the last end, or until the first step that ends at `until_ns` or later."""
        while self._plan is not None or self._num_arrived < len(self._arrivals):
            if until_ns is not None and self.clock.now_ns() >= until_ns:
                return
            if self._plan is None:
                self._advance_to(self._arrivals[self._num_arrived].at_ns)
                self._take_arrivals()
            else:
                self._run_step(self._plan)

    def _run_step(self, plan: StepPlanned) -> None:
        if self.core.limits.async_scheduling:
            self._handle(StepLaunched(plan.step))
        execute, faults = self._executor.execute, self.faults
        event = execute(plan) if faults is None else faults.execute(plan, execute)
        if isinstance(event, StepCompleted):
            self.clock.advance(event.swap_ns + event.execute_ns)
        self._take_arrivals()
        if faults is not None:
            for request in faults.take_leaving():
                self._handle(RequestCancelled(request, CancelCause.CLIENT))
        self._plan, self._ahead = self._ahead, None
        self._handle(event)

    def _take_arrivals(self) -> None:
        """All that came until now."""
        now_ns = self.clock.now_ns()
        while self._num_arrived < len(self._arrivals) and self._arrivals[self._num_arrived].at_ns <= now_ns:
            number, arrival = self._num_arrived, self._arrivals[self._num_arrived]
            self._num_arrived += 1
            self._executor.add(number, arrival)
            self._handle(
                RequestArrived(
                    number,
                    arrival.name or f"trace-{number}",
                    arrival.tenant,
                    arrival.priority,
                    arrival.at_ns,
                    arrival.num_prompt_tokens,
                    arrival.max_output_tokens,
                    self._executor.prompt_digests(number, arrival),
                    _SAMPLING,
                )
            )

    def _advance_to(self, at_ns: int) -> None:
        self.clock.advance(max(0, at_ns - self.clock.now_ns()))

    def _handle(self, event: Event) -> None:
        now_ns = self.clock.now_ns()
        decisions = self.core.handle(event, now_ns)
        entry = Entry(self._num_entries, now_ns, event, tuple(decisions))
        self._num_entries += 1
        for decision in decisions:
            kind = type(decision)
            if kind is StepPlanned and type(event) is StepLaunched:
                self._ahead = decision  # type: ignore[assignment]  # its type was just compared
            elif kind is StepPlanned:
                self._plan = decision  # type: ignore[assignment]  # its type was just compared
            elif kind is RequestFinished or kind is RequestRejected:
                self._executor.drop(decision.request)  # type: ignore[union-attr]  # both have one
            elif kind is RequestAdmitted or kind is RequestPreempted:
                self._executor.copy_blocks(len(decision.host_blocks))  # type: ignore[union-attr]  # both have them
        for read in self.readers:
            read(entry)
