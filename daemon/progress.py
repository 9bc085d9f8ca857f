"""Does the engine get on with its work? The health endpoint's question, answered from entries and a clock."""

from engine.clock import Clock
from engine.core.events import StepCompleted, StepFailed
from engine.core.vocabulary import Entry


class Progress:
    """Seconds for which work has waited without a step ending; 0 while nothing waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._has_work = False
        self._last_moved_ns = clock.now_ns()

    @property
    def stalled_seconds(self) -> float:
        return (self._clock.now_ns() - self._last_moved_ns) / 1e9 if self._has_work else 0.0

    def note_work(self, num_live: int) -> None:
        """The number of live requests has changed; the time begins when there was none before."""
        if num_live and not self._has_work:
            self._last_moved_ns = self._clock.now_ns()
        self._has_work = num_live > 0

    def note_entry(self, entry: Entry, num_live: int) -> None:
        if type(entry.event) in (StepCompleted, StepFailed):
            self._last_moved_ns = self._clock.now_ns()
        self.note_work(num_live)
