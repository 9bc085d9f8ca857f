"""The way from the engine thread to the writer thread: bounded, and whoever puts something in never waits.

An entry that finds it full leaves its place in the order: the writer makes a gap of it. Contents that find it full are
counted. It must not know files.
"""

import threading
from queue import Empty, SimpleQueue
from typing import NamedTuple

from engine.core.vocabulary import Entry
from recorder.segments import Lost
from recorder.vault_records import Prompt, StepTokens

_MAX_BATCH_ITEMS = 512  # taken at once: bounds how long the writer holds what it has taken


class Closing(NamedTuple):
    """Nothing follows."""

    cause: str


class Refused:
    """A place in the queue for entries that found it full; still open to more until the writer takes it."""

    __slots__ = ("is_taken", "lost")

    def __init__(self, lost: Lost) -> None:
        self.lost = lost
        self.is_taken = False


Item = Entry | Prompt | StepTokens | Refused | Closing


class EntryQueue:
    """The engine thread puts, the writer thread takes.

    num_refused   entries that found it full, or came after it was closed
    is_closed     from here on all is refused
    """

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        self._items: SimpleQueue[Item] = SimpleQueue()
        self._refused: Refused | None = None
        self._refused_lock = threading.Lock()
        self._num_contents_refused = 0
        self._num_contents_told = 0
        self.num_refused = 0
        self.is_closed = False

    @property
    def is_half_empty(self) -> bool:
        return self._items.qsize() < self._max_items // 2

    def put(self, entry: Entry) -> None:
        if self._items.qsize() < self._max_items:
            self._items.put(entry)
        else:
            self._refuse(entry)

    def put_keyframe(self, keyframe: Entry) -> None:
        """Beyond the bound if need be."""
        with self._refused_lock:
            self._refused = None  # what is refused from here on lies behind it
        self._items.put(keyframe)

    def put_contents(self, item: Prompt | StepTokens) -> None:
        if self._items.qsize() < self._max_items:
            self._items.put(item)
        else:
            self._num_contents_refused += 1

    def close(self, cause: str) -> None:
        self.is_closed = True
        self._max_items = 0
        self._items.put(Closing(cause))

    def take(self, timeout_s: float | None) -> list[Item]:
        """What is at hand, waiting for the first of it; empty when the time has passed. Closing comes last."""
        try:
            batch = [self._items.get(timeout=timeout_s)]
        except Empty:
            return []
        for _ in range(min(self._items.qsize(), _MAX_BATCH_ITEMS)):
            if isinstance(batch[-1], Closing):
                break
            batch.append(self._items.get_nowait())
        return batch

    def unwrapped(self, item: Entry | Refused) -> Entry | Lost:
        """As segments take it; what was refused is complete with this."""
        if isinstance(item, Entry):
            return item
        with self._refused_lock:
            item.is_taken = True
        return item.lost

    def take_num_contents_refused(self) -> int:
        """Since this was last asked."""
        num_refused = self._num_contents_refused
        num_new, self._num_contents_told = num_refused - self._num_contents_told, num_refused
        return num_new

    def _refuse(self, entry: Entry) -> None:
        self.num_refused += 1
        if self.is_closed:
            return
        with self._refused_lock:
            last = self._refused
            if last and not last.is_taken and last.lost.first_sequence + last.lost.num_entries == entry.sequence:
                last.lost.num_entries += 1
                last.lost.last_now_ns = entry.now_ns
                return
            cause = f"the recorder's queue was full ({self._max_items} entries)"
            self._refused = Refused(Lost(entry.sequence, 1, entry.now_ns, cause))
        self._items.put(self._refused)  # one beyond the bound, in its place among the entries
