"""What the recorder has written and lost in this daemon's life, over all engines: counters that never go down."""

from engine.protocol import RecorderStatus


class RecorderTotals:
    """Sums of the engines' recorder counts; each engine counts from 0 again."""

    def __init__(self) -> None:
        self._before = RecorderStatus(0, 0, 0)
        self._current = RecorderStatus(0, 0, 0)

    @property
    def totals(self) -> RecorderStatus:
        before, current = self._before, self._current
        return RecorderStatus(*(a + b for a, b in zip(before, current, strict=True)))

    def apply(self, status: RecorderStatus) -> None:
        """The latest counts of the engine that runs now."""
        self._current = status

    def begin_next(self) -> None:
        """The engine is gone; the next one begins at 0."""
        self._before, self._current = self.totals, RecorderStatus(0, 0, 0)
