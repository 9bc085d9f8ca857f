"""How far the stream is settled: every entry before is on file, or counted as lost."""

import threading
from collections.abc import Sequence

from engine.core.vocabulary import CoreKeyframe, Entry
from recorder.entry_queue import Item, Refused


class Settling:
    """The writer thread moves it on, others wait for it.

    settled   the first sequence that is not settled
    """

    def __init__(self, first_sequence: int) -> None:
        self.settled = first_sequence
        self._moved = threading.Condition()
        self._is_awaited = False

    def wait_until(self, sequence: int, timeout_s: float) -> bool:
        """Whether the entry is settled within this time; with a timeout of 0 it only looks."""
        if sequence < self.settled:
            return True
        if timeout_s <= 0:
            return False

        def is_settled() -> bool:
            self._is_awaited = True  # before looking: `settle` moves on first and looks at this then
            return sequence < self.settled

        with self._moved:
            return self._moved.wait_for(is_settled, timeout_s)

    def settle(self, batch: Sequence[Item]) -> None:
        """All of the batch is written."""
        for item in reversed(batch):
            if isinstance(item, Entry):
                self.settled = item.sequence + (type(item.event) is not CoreKeyframe)
            elif isinstance(item, Refused):
                self.settled = item.lost.first_sequence + item.lost.num_entries
            else:
                continue
            break
        if self._is_awaited:
            with self._moved:
                self._is_awaited = False
                self._moved.notify_all()
