"""The recorder: takes entries from the engine thread without ever making it wait; a thread of its own writes them.

What it must not do: block, raise into or otherwise slow the engine because of the disk. A full queue and a failing
disk cost entries, which are counted and stand in the recording as a gap.

Whoever shows an entry to the world first asks `wait_until_settled` whether it is on file or counted as lost: then a
killed process has told nobody of anything that its recording lacks.
"""

import fcntl
import os
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from engine.clock import Clock
from engine.core.contents import RequestContents, TokenOutput
from engine.core.limits import MAX_RECORD_QUEUE_ENTRIES
from engine.core.vocabulary import CoreKeyframe, Entry
from recorder.disk_sync import DiskSync
from recorder.errors import RecordingUnwritable
from recorder.header import Header
from recorder.incidents import Incident, incident_in
from recorder.keyframe_demand import KeyframeDemand
from recorder.segments import Lost, SegmentWriter
from recorder.slo_watch import SloWatch
from recorder.vault_records import Prompt, StepTokens

if TYPE_CHECKING:  # cryptography is for those who keep contents
    from recorder.keys import KeyRing
    from recorder.vault_writer import VaultWriter

_MAX_BATCH_ITEMS = 512  # in one append: bounds how long the thread holds what it has taken
_CLOSE_TIMEOUT_S = 10.0  # a disk that hangs must not keep the process from ending
_NS_PER_S = 1_000_000_000


class _Close(NamedTuple):
    cause: str


class _Refused:
    """A place in the queue for entries that found it full; still open to more until the writer takes it."""

    __slots__ = ("is_taken", "lost")

    def __init__(self, lost: Lost) -> None:
        self.lost = lost
        self.is_taken = False


_Item = Entry | Prompt | StepTokens | _Refused | _Close


class Recorder:
    """Records one engine process into the folder of its run.

    The folder is made (0700) unless an earlier engine process of the run made it; its segments are then followed by
    the next number. Contents are kept only with `record_content`, encrypted under `keys` where there are any. After
    `close` everything is on the disk.

    directory    the run's
    incidents    (segment number, Incident) of entries that say that their segment should be kept; for the keeper
    is_paused    entries are not written but counted as lost, until `resume`
    """

    def __init__(
        self,
        directory: Path,
        header: Header,
        clock: Clock,
        *,
        record_content: bool,
        max_segment_bytes: int,
        sync_interval_ms: int,
        max_segment_age_s: int = 600,
        max_queue_entries: int = MAX_RECORD_QUEUE_ENTRIES,
        keys: "KeyRing | None" = None,
        slo: SloWatch | None = None,
    ) -> None:
        """Raises RecordingUnwritable when the folder cannot be written or another process records into it."""
        self.directory = directory
        self.incidents: SimpleQueue[tuple[int, Incident]] = SimpleQueue()
        self._retry_interval_s = sync_interval_ms / 1e3
        self._max_queue_entries = max_queue_entries
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._refused: _Refused | None = None
        self._refused_lock = threading.Lock()
        self._num_refused = 0
        self._num_contents_refused = 0
        self._num_contents_refused_told = 0
        self._is_closed = False
        self._settled = header.first_sequence
        self._settling = threading.Condition()
        self._is_awaited = False
        self._slo = None if slo is None or slo.is_idle else slo
        self._folder = _claim_folder(directory)
        self._disk = DiskSync(sync_interval_ms)
        self._demand = KeyframeDemand()
        try:
            self._segments = SegmentWriter(
                directory, header, clock, self._disk, self._demand, max_segment_bytes, max_segment_age_s * _NS_PER_S
            )
            number = self._segments.segment_number
            self._vault = self._open_vault(header, clock, number, keys) if record_content else None
        except RecordingUnwritable:
            self._disk.close(_CLOSE_TIMEOUT_S)
            os.close(self._folder)
            raise
        self._thread = threading.Thread(target=self._write_until_closed, name="recorder", daemon=True)
        self._thread.start()

    @property
    def num_bytes(self) -> int:
        """Appended so far, to segments and vaults."""
        return self._segments.num_bytes + (self._vault.num_bytes if self._vault else 0)

    @property
    def num_entries(self) -> int:
        """The engine's entries that are on file."""
        return self._segments.num_entries

    @property
    def num_gap_entries(self) -> int:
        """Entries given to `record` that will not be on file."""
        return self._num_refused + self._segments.num_lost

    @property
    def segment_number(self) -> int:
        """Of the one under way."""
        return self._segments.segment_number

    @property
    def is_paused(self) -> bool:
        return bool(self._segments.paused_because)

    @property
    def last_error(self) -> str:
        """What the disk or the encoding said last; "" if all went well."""
        return self._segments.last_error

    @property
    def wants_keyframe(self) -> bool:
        """Engine thread: the core's state should be given to `record_keyframe` before the next entry."""
        return self._demand.is_wanted and not self.is_paused and self._queue.qsize() < self._max_queue_entries // 2

    def record_keyframe(self, keyframe: Entry) -> None:
        """Engine thread: queue an entry of a CoreKeyframe, with the sequence of the next one. If it is lost, no entry
        is lost with it."""
        with self._refused_lock:
            self._refused = None  # what is refused from here on lies behind it
        self._demand.answer()
        self._queue.put(keyframe)

    def record(self, entry: Entry) -> None:
        """Engine thread: queue the entry for writing. Never blocks, never raises."""
        self._demand.see(entry)
        if self._queue.qsize() < self._max_queue_entries:
            self._queue.put(entry)
        else:
            self._refuse(entry)

    def record_contents(self, request: int, contents: RequestContents) -> None:
        """Engine thread: a request's token ids, to the vault. Call it before the request's first step completes, so
        that no recorded step lacks its contents."""
        if self._vault is not None:
            self._queue_contents(Prompt(request, contents))

    def record_tokens(self, step: int, outputs: tuple[TokenOutput, ...]) -> None:
        """Engine thread: a step's tokens, to the vault. Call it before recording the entry of StepCompleted."""
        if self._vault is not None:
            self._queue_contents(StepTokens(step, outputs))

    def wait_until_settled(self, sequence: int, timeout_s: float) -> bool:
        """Whether the entry is on file, or counted as lost, within this time; any thread but the engine's.

        With a timeout of 0 it only looks.
        """
        if sequence < self._settled:
            return True
        if timeout_s <= 0:
            return False

        def is_settled() -> bool:
            self._is_awaited = True  # before looking: `_settle` moves on first and looks at this then
            return sequence < self._settled

        with self._settling:
            return self._settling.wait_for(is_settled, timeout_s)

    def pause(self, cause: str) -> None:
        """Write nothing for now: from here on entries become a gap with this cause."""
        self._segments.paused_because = cause

    def resume(self) -> None:
        self._segments.paused_because = ""

    def close(self, cause: str) -> None:
        """Write what is queued, then RecordingClosed; sync; end the thread. A second call does nothing.

        Waits at most 10 s for what is to be written and 10 s for the disk to sync it; later entries are counted
        as lost.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._max_queue_entries = 0  # from here on `record` refuses
        self._queue.put(_Close(cause))
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self._thread.is_alive() and self._disk.close(_CLOSE_TIMEOUT_S):
            os.close(self._folder)  # gives up the claim

    def _open_vault(self, header: Header, clock: Clock, segment_number: int, keys: "KeyRing | None") -> "VaultWriter":
        from recorder.vault_writer import VaultWriter  # here, for most recordings hold no contents

        return VaultWriter(self.directory, header, clock, self._disk, segment_number, keys)

    def _refuse(self, entry: Entry) -> None:
        self._num_refused += 1
        if self._is_closed:
            return
        with self._refused_lock:
            last = self._refused
            if last and not last.is_taken and last.lost.first_sequence + last.lost.num_entries == entry.sequence:
                last.lost.num_entries += 1
                last.lost.last_now_ns = entry.now_ns
                return
            cause = f"the recorder's queue was full ({self._max_queue_entries} entries)"
            self._refused = _Refused(Lost(entry.sequence, 1, entry.now_ns, cause))
        self._queue.put(self._refused)  # one beyond the bound, in its place among the entries

    def _queue_contents(self, item: Prompt | StepTokens) -> None:
        if self._queue.qsize() < self._max_queue_entries:
            self._queue.put(item)
        else:
            self._num_contents_refused += 1

    def _write_until_closed(self) -> None:
        """The writer thread. It sleeps in the queue, and wakes by itself only while a gap waits to be written."""
        while True:
            batch = self._take(self._retry_interval_s if self.has_gap_to_write else None)
            closing = batch.pop() if batch and isinstance(batch[-1], _Close) else None
            self._write(batch)
            self._settle(batch)
            if isinstance(closing, _Close):
                self._finish(closing.cause)
                return

    def _take(self, timeout_s: float | None) -> list[_Item]:
        """What is at hand, waiting for the first of it; empty when the time has passed."""
        try:
            batch = [self._queue.get(timeout=timeout_s)]
        except Empty:
            return []
        for _ in range(min(self._queue.qsize(), _MAX_BATCH_ITEMS)):
            if isinstance(batch[-1], _Close):
                break
            batch.append(self._queue.get_nowait())
        return batch

    def _settle(self, batch: list[_Item]) -> None:
        for item in reversed(batch):
            if isinstance(item, Entry):
                self._settled = item.sequence + (type(item.event) is not CoreKeyframe)
            elif isinstance(item, _Refused):
                self._settled = item.lost.first_sequence + item.lost.num_entries
            else:
                continue
            break
        if self._is_awaited:
            with self._settling:
                self._is_awaited = False
                self._settling.notify_all()

    def _write(self, batch: list[_Item]) -> None:
        """Contents first: whatever stands in the stream has its contents in the vault."""
        if self._vault is not None and self.is_paused:
            num_contents = sum(1 for item in batch if isinstance(item, Prompt | StepTokens))
            self._vault.note_lost(num_contents, self._segments.paused_because)
        elif self._vault is not None:
            for item in batch:
                if isinstance(item, Entry):
                    self._vault.see(item)
            contents: list[Prompt | StepTokens] = [item for item in batch if isinstance(item, Prompt | StepTokens)]
            self._tell_refused_contents(self._vault)
            self._vault.append(contents, self._segments.segment_number)
            if self._vault.is_broken:
                self._segments.must_rotate = True
        self._segments.append([self._unwrapped(item) for item in batch if isinstance(item, Entry | _Refused)])
        for item in batch:
            if isinstance(item, Entry) and (incident := incident_in(item)) is not None:
                self.incidents.put((self._segments.segment_number, incident))
            if self._slo is not None and isinstance(item, Entry) and self._slo.breached(item):
                self.incidents.put((self._segments.segment_number, Incident.SLO_BREACH))

    def _unwrapped(self, item: Entry | _Refused) -> Entry | Lost:
        if isinstance(item, Entry):
            return item
        with self._refused_lock:
            item.is_taken = True
        return item.lost

    def _tell_refused_contents(self, vault: "VaultWriter") -> None:
        num_refused = self._num_contents_refused
        if num_refused > self._num_contents_refused_told:
            vault.note_lost(num_refused - self._num_contents_refused_told, "the recorder's queue was full")
            self._num_contents_refused_told = num_refused

    @property
    def has_gap_to_write(self) -> bool:
        """Entries are lost and the disk has not yet taken the gap that says so."""
        return self._segments.has_gap_to_write or (self._vault is not None and self._vault.num_lost > 0)

    def _finish(self, cause: str) -> None:
        if self._vault is not None:
            self._tell_refused_contents(self._vault)
            self._vault.close()
        self._segments.close(cause)


def _claim_folder(directory: Path) -> int:
    """Make the folder or take it over from a process that is gone; the descriptor returned holds a lock on it."""
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RecordingUnwritable(f"cannot record in {directory}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise RecordingUnwritable(f"another process records in {directory}: give each run its own folder") from error
    return descriptor
