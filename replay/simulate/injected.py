"""Injected faults in a simulation: `--inject` as an engine takes it, on virtual time."""

from collections.abc import Callable, Sequence

from engine.clock import ManualClock
from engine.core.decisions import StepPlanned
from engine.core.events import StepCompleted, StepFailed
from engine.injection import Injector, parse_injection


class SimulatedDeath(Exception):
    """The executor is gone: the simulation ends here, as the recording of a dead engine does."""


class SimulatedFaults:
    """Around an executor's step: `execute(plan, step)`. Raises UnknownInjection.

    leaving     requests whose clients leave during the step under way; whoever takes them clears it
    stop_recording   what a full disk does, where there is a recording
    """

    def __init__(self, texts: Sequence[str], clock: ManualClock) -> None:
        self._clock = clock
        self.stop_recording: Callable[[], None] = _no_recording
        self.leaving: list[int] = []
        self._injector = Injector([parse_injection(text) for text in texts], self)

    def execute(self, plan: StepPlanned, execute: Callable[[StepPlanned], StepCompleted]) -> StepCompleted | StepFailed:
        try:
            self._injector.before(plan)
        except MemoryError as error:
            return StepFailed(plan.step, f"MemoryError: {error}")
        return self._injector.after(execute(plan))

    def take_leaving(self) -> list[int]:
        leaving, self.leaving = self.leaving, []
        return leaving

    def slow_down(self, nanoseconds: int) -> None:
        self._clock.advance(nanoseconds)

    def jump(self, nanoseconds: int) -> None:
        self._clock.advance(nanoseconds)

    def fill_disk(self) -> None:
        self.stop_recording()

    def leave(self, request: int) -> None:
        self.leaving.append(request)

    def die(self) -> None:
        raise SimulatedDeath


def _no_recording() -> None:
    """Nothing is written, so nothing is lost."""
