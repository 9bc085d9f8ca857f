"""What the recorder has written and lost in this daemon's life, over all engines: counters that never go down."""

from engine.protocol import RecorderStatus


class RecorderTotals:
    """Sums of the engines' recorder counts, for each engine counts from 0 again; gauges are the latest."""

    def __init__(self) -> None:
        self._before = RecorderStatus(0, 0, 0)
        self._current = RecorderStatus(0, 0, 0)

    @property
    def totals(self) -> RecorderStatus:
        before, current = self._before, self._current
        return current._replace(
            num_bytes=before.num_bytes + current.num_bytes,
            num_entries=before.num_entries + current.num_entries,
            num_gap_entries=before.num_gap_entries + current.num_gap_entries,
            num_early_entries=before.num_early_entries + current.num_early_entries,
            num_removed_segments=before.num_removed_segments + current.num_removed_segments,
        )

    def apply(self, status: RecorderStatus) -> None:
        """The latest counts of the engine that runs now."""
        self._current = status

    def begin_next(self) -> None:
        """The engine is gone; the next one begins at 0."""
        self._before = self.totals
        self._current = RecorderStatus(
            0,
            0,
            0,
            num_directory_bytes=self._before.num_directory_bytes,
            num_pinned_bytes=self._before.num_pinned_bytes,
        )
