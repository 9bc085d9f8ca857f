"""A run's segments, written: entries into frames, rotation, and gaps for what could not be kept.

Everything here runs in the writer thread; it may wait for the disk, but never for a sync. An error of the disk never
leaves this module: it becomes a gap, which is written as soon as writing works again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgpack

from engine.clock import Clock
from engine.core.vocabulary import CoreKeyframe, Entry, RecordingClosed, RecordingGap, entry_to_array
from recorder.disk_sync import DiskSync
from recorder.errors import NotARecording, RecordingUnwritable
from recorder.format import MAX_BODY_BYTES, SEGMENT_MAGIC, segment_path, segment_paths
from recorder.frames import FramedFile, file_digest
from recorder.header import Header
from recorder.keyframe_demand import KeyframeDemand
from recorder.rotation import Rotation
from recorder.segment_files import live_digest


@dataclass(slots=True)
class Lost:
    """A stretch of entries that are not on file, and why; contiguous in sequence.

    last_now_ns   of the last of them: the time that the gap's entry bears, so that time never runs backwards
    """

    first_sequence: int
    num_entries: int
    last_now_ns: int
    cause: str


class _Frame(NamedTuple):
    body: bytes
    sequence: int
    now_ns: int
    num_entries: int  # that are lost with this frame; 0 for RecordingClosed and keyframes
    num_new: int  # of these, not yet counted as lost
    is_keyframe: bool = False


class SegmentWriter:
    """Appends to the newest segment and begins the next one when it must.

    num_entries, num_lost   the engine's entries on file, and those that the disk or the encoding refused
    num_bytes               appended so far, all segments together
    paused_because          set it to have entries counted as lost, with this cause; "" ends that
    must_rotate             set it to have the next append begin a segment
    last_error              what went wrong last; "" if nothing ever did
    """

    def __init__(
        self,
        directory: Path,
        header: Header,
        clock: Clock,
        disk: DiskSync,
        demand: KeyframeDemand,
        max_segment_bytes: int,
        max_age_ns: int,
        make_folder: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins the next segment of the folder. Raises RecordingUnwritable.

        make_folder   anew, when somebody has removed it; raises OSError
        """
        self._make_folder = make_folder
        self._demand = demand
        self._directory = directory
        self._clock = clock
        self._disk = disk
        self._rotation = Rotation(demand, max_segment_bytes, max_age_ns)
        self._packer = msgpack.Packer()
        self._lost: Lost | None = None
        self._next_sequence = header.first_sequence
        self._num_closed_bytes = 0
        self.must_rotate = False
        self.paused_because = ""
        self.num_entries = 0
        self.num_lost = 0
        self.last_error = ""
        try:
            earlier = segment_paths(directory)
            self._header = self._stamped(
                header,
                segment_number=int(earlier[-1].stem) + 1 if earlier else 1,
                previous_segment_digest=live_digest(earlier[-1]) if earlier else b"",
                starts_fresh=True,
            )
            self._file = self._create(self._header)
            self._rotation.begin(self._header.created_now_ns, with_keyframe=True)  # an empty core needs none
        except (OSError, NotARecording) as error:
            reason = getattr(error, "strerror", None) or error
            raise RecordingUnwritable(f"cannot record in {directory}: {reason}") from error

    @property
    def segment_number(self) -> int:
        return self._header.segment_number

    @property
    def wall_offset_ns(self) -> int:
        return self._header.created_wall_ns - self._header.created_now_ns

    @property
    def num_bytes(self) -> int:
        return self._num_closed_bytes + self._file.num_bytes

    @property
    def has_gap_to_write(self) -> bool:
        return self._lost is not None

    def append(self, items: Iterable[Entry | Lost]) -> None:
        """Entries, and stretches lost before they came here, in the order of their sequences."""
        frames: list[_Frame] = []
        paused_because = self.paused_because
        for item in items:
            if isinstance(item, Lost):
                self._widen_gap(item)
            elif type(item.event) is CoreKeyframe:
                if not paused_because:
                    self._encode_keyframe(item, item.event, frames)
            elif paused_because:
                self.num_lost += 1
                self._widen_gap(Lost(item.sequence, 1, item.now_ns, paused_because))
            else:
                self._encode(item, frames)
        if paused_because:
            return  # the gap is told when there is space again, or at the end
        self._encode_gap(frames)
        if frames:
            self._write(frames)

    def close(self, cause: str) -> None:
        """RecordingClosed as the last entry."""
        frames: list[_Frame] = []
        self._encode_gap(frames)
        now_ns = self._clock.now_ns()
        closed = Entry(self._next_sequence, now_ns, RecordingClosed(cause), ())
        frames.append(_Frame(self._packer.pack(entry_to_array(closed)), self._next_sequence, now_ns, 0, 0))
        self._write(frames)
        self._disk.retire(self._file)

    def _encode(self, entry: Entry, frames: list[_Frame]) -> None:
        self._next_sequence = entry.sequence + 1
        try:
            body = self._packer.pack(entry_to_array(entry))
            if len(body) > MAX_BODY_BYTES:
                raise ValueError(f"{len(body)} bytes exceed {MAX_BODY_BYTES}")
        except Exception as error:  # whatever is wrong with one entry, the recording goes on after it
            self._packer.reset()  # drops what it had packed of it
            self.num_lost += 1
            self.last_error = f"entry {entry.sequence} cannot be encoded: {error}"
            self._widen_gap(Lost(entry.sequence, 1, entry.now_ns, self.last_error))
            return
        self._encode_gap(frames)
        frames.append(_Frame(body, entry.sequence, entry.now_ns, 1, 1))

    def _encode_keyframe(self, entry: Entry, keyframe: CoreKeyframe, frames: list[_Frame]) -> None:
        """Nothing is lost with one that cannot be had."""
        try:
            body = self._packer.pack(entry_to_array(entry))
            if len(body) > MAX_BODY_BYTES:
                raise ValueError(f"{len(body)} bytes exceed {MAX_BODY_BYTES}")
        except Exception as error:  # as above
            self._packer.reset()
            self.last_error = f"the keyframe at entry {entry.sequence} cannot be encoded: {error}"
            return
        self._encode_gap(frames)
        frames.append(_Frame(body, entry.sequence, entry.now_ns, 0, 0, is_keyframe=True))
        self._demand.has_written(len(body))

    def _encode_gap(self, frames: list[_Frame]) -> None:
        lost, self._lost = self._lost, None
        if lost is None:
            return
        gap = Entry(
            lost.first_sequence,
            lost.last_now_ns,
            RecordingGap(lost.first_sequence, lost.num_entries, lost.cause),
            (),
        )
        body = self._packer.pack(entry_to_array(gap))
        frames.append(_Frame(body, lost.first_sequence, lost.last_now_ns, lost.num_entries, 0))
        self._demand.ask()  # behind a gap replay can go on from nothing else

    def _widen_gap(self, more: Lost) -> None:
        """One gap for all that is lost in a row; the first cause stands for the rest."""
        self._next_sequence = more.first_sequence + more.num_entries
        if self._lost is None:
            self._lost = replace(more)
        else:
            self._lost.num_entries += more.num_entries
            self._lost.last_now_ns = more.last_now_ns

    def _write(self, frames: Sequence[_Frame]) -> None:
        """All of `frames`, in as few appends as there are segments to fill; those that fail become the gap."""
        num_written = 0
        try:
            while num_written < len(frames):
                group = self._fitting(frames[num_written:])
                if not group:
                    self._begin_segment(frames[num_written])
                    continue
                self._file.append([frame.body for frame in group])
                self._disk.note(self._file)
                self._rotation.has_grown(self._file.num_bytes)
                self._demand.has_grown(self.num_bytes)
                self.num_entries += sum([frame.num_new for frame in group])
                num_written += len(group)
        except OSError as error:
            self.last_error = _text_of(error)
            self._lose(frames[num_written:])

    def _fitting(self, frames: Sequence[_Frame]) -> Sequence[_Frame]:
        """As many of them as the segment takes; at least one into an empty segment, however large it is.

        None of them when it is too old, or not to be trusted with more, or when a keyframe can begin the next one.
        """
        file = self._file
        if file.sync_error is not None:
            self.last_error = _text_of(file.sync_error)
        is_empty = file.num_bytes <= file.num_header_bytes
        is_due = self._rotation.is_due(self._clock.now_ns()) and not is_empty
        if is_due or self.must_rotate or file.is_broken or file.sync_error is not None:
            return ()
        return frames[: self._rotation.num_fitting(file.num_bytes, frames, is_empty=is_empty)]

    def _lose(self, frames: Sequence[_Frame]) -> None:
        self.num_lost += sum([frame.num_new for frame in frames])
        num_entries = sum([frame.num_entries for frame in frames])
        if num_entries:
            self._lost = Lost(frames[0].sequence, num_entries, frames[-1].now_ns, self.last_error)

    def _begin_segment(self, first: _Frame) -> None:
        """Raises OSError, and then the segment before stays the one in use."""
        if not self._directory.is_dir():
            self._make_folder()
        is_cut = self._file.is_broken and self._file.path.exists()
        header = self._stamped(
            self._header,
            segment_number=self._header.segment_number + 1,
            previous_segment_digest=file_digest(self._file.path) if is_cut else self._file.digest(),
            first_sequence=first.sequence,
            starts_fresh=False,
        )
        file = self._create(header)
        self._disk.retire(self._file)
        self._num_closed_bytes += self._file.num_bytes
        self._header, self._file, self.must_rotate = header, file, False
        self._rotation.begin(header.created_now_ns, with_keyframe=first.is_keyframe)

    def _stamped(self, header: Header, **changes: object) -> Header:
        return replace(
            header,
            created_wall_ns=self._clock.wall_ns(),
            created_now_ns=self._clock.now_ns(),
            **changes,  # type: ignore[arg-type]  # names and types are those of Header's own fields
        )

    def _create(self, header: Header) -> FramedFile:
        file = FramedFile(segment_path(self._directory, header.segment_number), SEGMENT_MAGIC, header.to_map())
        self._disk.note(file)
        return file


def _text_of(error: OSError) -> str:
    return f"{error.strerror or error} (errno {error.errno})"
