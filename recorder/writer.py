"""The recorder: takes entries from the engine thread without ever making it wait; a thread of its own writes them.

What it must not do: block, raise into or otherwise slow the engine because of the disk. A full queue and a failing
disk cost entries, which are counted and stand in the recording as a gap.

Whoever shows an entry to the world first asks `wait_until_settled` whether it is on file or counted as lost: then a
killed process has told nobody of anything that its recording lacks.
"""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from engine.clock import Clock
from engine.core.contents import RequestContents, TokenOutput
from engine.core.limits import MAX_RECORD_QUEUE_ENTRIES
from engine.core.vocabulary import CoreKeyframe, Entry
from recorder.disk_sync import DiskSync
from recorder.entry_queue import Closing, EntryQueue, Item, Refused
from recorder.errors import RecordingUnwritable
from recorder.folder_claim import claim_folder
from recorder.header import Header
from recorder.incidents import Incident, incident_in
from recorder.keyframe_demand import KeyframeDemand
from recorder.segments import SegmentWriter
from recorder.settling import Settling
from recorder.slo_watch import SloWatch
from recorder.vault_records import Prompt, StepTokens

if TYPE_CHECKING:  # cryptography is for those who keep contents
    from recorder.keys import KeyRing
    from recorder.vault_writer import VaultWriter

_CLOSE_TIMEOUT_S = 10.0  # a disk that hangs must not keep the process from ending
_NS_PER_S = 1_000_000_000


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
        self._queue = EntryQueue(max_queue_entries)
        self._settling = Settling(header.first_sequence)
        self._num_recorded = header.first_sequence
        self._slo = None if slo is None or slo.is_idle else slo
        self._folder = claim_folder(directory)
        self._disk = DiskSync(sync_interval_ms)
        self._demand = KeyframeDemand()
        try:
            self._segments = SegmentWriter(
                directory,
                header,
                clock,
                self._disk,
                self._demand,
                max_segment_bytes,
                max_segment_age_s * _NS_PER_S,
                self._claim_again,
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
    def wall_offset_ns(self) -> int:
        """What is to be added to a `now_ns` for the calendar's time, by the segment under way."""
        return self._segments.wall_offset_ns

    @property
    def num_waiting_entries(self) -> int:
        """Entries given to `record` that are neither on file nor counted as lost yet."""
        return max(0, self._num_recorded - self._settling.settled)

    @property
    def num_gap_entries(self) -> int:
        """Entries given to `record` that will not be on file."""
        return self._queue.num_refused + self._segments.num_lost

    @property
    def segment_number(self) -> int:
        """Of the one under way."""
        return self._segments.segment_number

    @property
    def is_paused(self) -> bool:
        return bool(self._segments.paused_because)

    @property
    def last_error(self) -> str:
        """What the disk or the encoding said last, of the vault where all is well else; "" if it never did."""
        return self._segments.last_error or (self._vault.last_error if self._vault else "")

    @property
    def wants_keyframe(self) -> bool:
        """Engine thread: the core's state should be given to `record_keyframe` before the next entry."""
        return self._demand.is_wanted and not self.is_paused and self._queue.is_half_empty

    def record_keyframe(self, keyframe: Entry) -> None:
        """Engine thread: queue an entry of a CoreKeyframe, with the sequence of the next one. If it is lost, no entry
        is lost with it."""
        self._demand.answer()
        self._queue.put_keyframe(keyframe)

    def record(self, entry: Entry) -> None:
        """Engine thread: queue the entry for writing. Never blocks, never raises."""
        self._demand.see(entry)
        self._queue.put(entry)
        self._num_recorded = entry.sequence + 1

    def record_contents(self, request: int, contents: RequestContents) -> None:
        """Engine thread: a request's token ids, to the vault. Call it before the request's first step completes, so
        that no recorded step lacks its contents."""
        if self._vault is not None:
            self._queue.put_contents(Prompt(request, contents))

    def record_tokens(self, step: int, outputs: tuple[TokenOutput, ...]) -> None:
        """Engine thread: a step's tokens, to the vault. Call it before recording the entry of StepCompleted."""
        if self._vault is not None:
            self._queue.put_contents(StepTokens(step, outputs))

    def wait_until_settled(self, sequence: int, timeout_s: float) -> bool:
        """Whether the entry is on file, or counted as lost, within this time; any thread but the engine's.

        With a timeout of 0 it only looks.
        """
        return self._settling.wait_until(sequence, timeout_s)

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
        if self._queue.is_closed:
            return
        self._queue.close(cause)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self._thread.is_alive() and self._disk.close(_CLOSE_TIMEOUT_S):
            os.close(self._folder)  # gives up the claim

    def _claim_again(self) -> None:
        """Writer thread: the folder was removed. Raises OSError."""
        try:
            folder = claim_folder(self.directory)
        except RecordingUnwritable as error:
            raise FileNotFoundError(errno.ENOENT, str(error)) from error
        os.close(self._folder)
        self._folder = folder

    def _open_vault(self, header: Header, clock: Clock, segment_number: int, keys: "KeyRing | None") -> "VaultWriter":
        from recorder.vault_writer import VaultWriter  # here, for most recordings hold no contents

        return VaultWriter(self.directory, header, clock, self._disk, segment_number, keys)

    def _write_until_closed(self) -> None:
        """The writer thread. It sleeps in the queue, and wakes by itself only while a gap waits to be written."""
        while True:
            batch = self._queue.take(self._retry_interval_s if self.has_gap_to_write else None)
            closing = batch.pop() if batch and isinstance(batch[-1], Closing) else None
            for part in _parted(batch):
                self._write(part)
            self._settling.settle(batch)
            if isinstance(closing, Closing):
                self._finish(closing.cause)
                return

    def _write(self, batch: list[Item]) -> None:
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
        self._segments.append([self._queue.unwrapped(item) for item in batch if isinstance(item, Entry | Refused)])
        for item in batch:
            if isinstance(item, Entry) and (incident := incident_in(item)) is not None:
                self.incidents.put((self._segments.segment_number, incident))
            if self._slo is not None and isinstance(item, Entry) and self._slo.breached(item):
                self.incidents.put((self._segments.segment_number, Incident.SLO_BREACH))

    def _tell_refused_contents(self, vault: "VaultWriter") -> None:
        num_refused = self._queue.take_num_contents_refused()
        if num_refused:
            vault.note_lost(num_refused, "the recorder's queue was full")

    @property
    def has_gap_to_write(self) -> bool:
        """Entries are lost and the disk has not yet taken the gap that says so."""
        return self._segments.has_gap_to_write or (self._vault is not None and self._vault.num_lost > 0)

    def _finish(self, cause: str) -> None:
        if self._vault is not None:
            self._tell_refused_contents(self._vault)
            self._vault.close()
        self._segments.close(cause)


def _parted(batch: list[Item]) -> Iterator[list[Item]]:
    """At each keyframe, which may begin a segment: the contents of what comes behind it belong beside that one."""
    first = 0
    for place, item in enumerate(batch):
        if isinstance(item, Entry) and type(item.event) is CoreKeyframe:
            yield batch[first:place]
            yield batch[place : place + 1]
            first = place + 1
    yield batch[first:]
