"""A recording, read: entries in order, and a plain account of what is not there.

Whole entries are never lost and nothing is invented: a file's entries end at its first bad frame (a sealed one's go on
after a bad chunk), and what that cost is told by `notices` and `missing`. Live and sealed segments read alike. Nothing
is repaired in place.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack

from engine.clock import SystemClock
from engine.core.vocabulary import CoreKeyframe, Entry, entry_from_array
from recorder.audit import contents_read
from recorder.continuity import Continuity, MissingRange, Notice, NoticeKind
from recorder.errors import NewerFormat, NoContents, NotARecording, RecordingError
from recorder.format import SEGMENT_SUFFIX, VAULT_SUFFIX, segment_paths
from recorder.frame_places import FRAMES_APART, FramePlace, FramePlaces
from recorder.frames import FrameReader
from recorder.header import Header
from recorder.keyframes import sequence_of
from recorder.segment_files import open_segment

if TYPE_CHECKING:  # cryptography and zstd are for those who need them
    from recorder.keys import KeyRing
    from recorder.sealed import SealedReader
    from recorder.vault import Contents

__all__ = [
    "Recording",
    "Segment",
    "Notice",
    "NoticeKind",
    "MissingRange",
    "RecordingError",
    "NoContents",
    "NotARecording",
    "NewerFormat",
]


@dataclass(frozen=True, slots=True)
class Segment:
    path: Path
    header: Header
    num_bytes: int


class Recording:
    """One run's recording, or a part of it.

    path       as it was opened
    segments   in order
    notices    what the last pass over `entries` found wrong, in order of finding; complete when the pass is
    missing    stretches of sequences known to be missing, likewise
    is_closed  the last entry read was RecordingClosed: the process ended in order
    """

    def __init__(self, path: Path, segments: tuple[Segment, ...], unreadable: tuple[Notice, ...] = ()) -> None:
        """Use `open`."""
        self.path = path
        self.segments = segments
        self._unreadable = unreadable
        self._continuity = Continuity(unreadable)

    @classmethod
    def open(cls, path: Path) -> "Recording":
        """A run's folder, or one segment of it. Reads the headers only.

        Raises RecordingError: NotARecording, NewerFormat, or with a text that names the runs found in a folder of runs.
        """
        if not path.exists():
            raise RecordingError(f"{path} does not exist: give the folder of one run, or a {SEGMENT_SUFFIX} file in it")
        if not path.is_dir():
            return cls(path, (_open_segment(path),))
        paths = segment_paths(path)
        if not paths:
            raise RecordingError(_no_segments(path))
        segments: list[Segment] = []
        unreadable: list[Notice] = []
        for segment_path in paths:
            try:
                segments.append(_open_segment(segment_path))
            except NotARecording as error:
                num_bytes = segment_path.stat().st_size
                unreadable.append(Notice(NoticeKind.UNREADABLE, segment_path, 0, num_bytes, str(error)))
        if not segments:
            raise NotARecording(unreadable[0].text)
        return cls(path, tuple(segments), tuple(unreadable))

    @property
    def header(self) -> Header:
        """Of the first segment."""
        return self.segments[0].header

    @property
    def sections(self) -> "tuple[Recording, ...]":
        """The run's engine processes, each a recording of its own whose sequences and steps begin anew."""
        starts = [index for index, segment in enumerate(self.segments) if index == 0 or segment.header.starts_fresh]
        ends = [*starts[1:], len(self.segments)]
        return tuple([Recording(self.path, self.segments[a:b]) for a, b in zip(starts, ends, strict=True)])

    @property
    def notices(self) -> list[Notice]:
        return self._continuity.notices

    @property
    def missing(self) -> list[MissingRange]:
        return self._continuity.missing

    @property
    def is_closed(self) -> bool:
        return self._continuity.is_closed

    @property
    def is_complete(self) -> bool:
        """Nothing is known to be missing, as far as `entries` was read. A killed process's recording is complete too,
        though what it had not appended yet is unknown: see `is_closed`."""
        return not self.missing and not self._unreadable

    def entries(self, from_sequence: int = 0, *, keyframes: bool = False) -> Iterator[Entry]:
        """All entries, read as they are asked for, over all segments; gaps are entries too (RecordingGap).

        from_sequence   of one of `sections`: those before are left out, mostly unread
        keyframes       are entries too (CoreKeyframe), the one before `from_sequence` among them
        """
        continuity = self._continuity = Continuity(self._unreadable)
        first_segment = self._first_segment(from_sequence)
        for number, segment in enumerate(self.segments[first_segment:]):
            continuity.begin_segment(segment.path, segment.header)
            frames = open_segment(segment.path)
            is_cut = from_sequence > 0 and number == 0
            bodies = _bodies_from(frames, from_sequence, continuity) if is_cut else frames.bodies()
            try:
                for entry in self._decoded(bodies, frames, continuity):
                    if entry.sequence >= from_sequence and (keyframes or type(entry.event) is not CoreKeyframe):
                        yield entry
            finally:
                frames.close()
            continuity.end_segment(segment.path, frames.damages, is_torn=frames.is_torn, index_fault=frames.index_fault)
        continuity.end_recording()

    def _first_segment(self, sequence: int) -> int:
        firsts = [segment.header.first_sequence for segment in self.segments]
        return max(0, bisect_right(firsts, sequence) - 1) if sequence else 0

    def contents(self) -> "Contents":
        """What the vaults beside the segments hold; said in an audit line. Raises NoContents when there is none.

        Keys are looked for in the folder `keys` beside the run's, or where the environment says (`keys.py`).
        Step numbers begin anew in each of `sections`: ask a section where a run has several.
        """
        from recorder.vault import Contents

        vaults = [segment.path.with_suffix(VAULT_SUFFIX) for segment in self.segments]
        present = [path for path in vaults if path.exists()]
        if not present:
            raise NoContents(self.path)
        contents = Contents.read(present, self._open_keys)
        contents_read(self.path, len(contents.prompts), contents.num_unreadable)
        return contents

    def _open_keys(self) -> "KeyRing":
        from recorder.keys import open_ring

        return open_ring(self.segments[0].path.resolve().parent.parent / "keys", SystemClock(), os.environ)

    def _decoded(
        self, bodies: Iterator[bytes], frames: "FrameReader | SealedReader", continuity: Continuity
    ) -> Iterator[Entry]:
        unpack = msgpack.unpackb
        for body in bodies:
            try:
                entry = entry_from_array(unpack(body, use_list=False, strict_map_key=False))
            except Exception as error:  # a stranger's bytes may be wrong in any way; which one is in the notice
                frames.mark_damaged(f"the frame holds no entry: {error or type(error).__name__}", body)
                return
            continuity.see(entry)
            yield entry


_PLACES = FramePlaces()


def _bodies_from(frames: "FrameReader | SealedReader", sequence: int, continuity: Continuity) -> Iterator[bytes]:
    """From the first that may bear this sequence on; those before are not unpacked."""
    first_chunk = 0
    if isinstance(frames, FrameReader):
        _PLACES.go_near(frames, sequence)
    elif frames.index is not None and frames.index.chunks:
        of_keyframe = frames.index.of_keyframe(sequence)
        first_chunk = frames.index.of_sequence(sequence) if of_keyframe is None else of_keyframe
    bodies = frames.bodies(first_chunk)
    last = b""
    passed: FramePlace | None = None
    for count, body in enumerate(bodies):
        if passed is not None and isinstance(frames, FrameReader):
            _PLACES.note(frames, passed)
        found = sequence_of(body)
        if found is None or found >= sequence:
            continuity.skip_to(sequence if found is None else found)
            yield body
            yield from bodies
            return
        last, passed = body, None
        if count % FRAMES_APART == FRAMES_APART - 1 and isinstance(frames, FrameReader):
            passed = FramePlace(found, frames.offset, frames.checksum)
    if last:  # all come before; the last one may say that the process was closed
        continuity.skip_to(sequence_of(last) or 0)
        yield last


def _open_segment(path: Path) -> Segment:
    if path.suffix == VAULT_SUFFIX:
        raise RecordingError(f"{path} is a vault: open the {SEGMENT_SUFFIX} file beside it, or their folder")
    frames = open_segment(path)
    frames.close()
    return Segment(frames.path, Header.from_map(frames.header, path), frames.path.stat().st_size)


def _no_segments(folder: Path) -> str:
    runs = sorted([child.name for child in folder.iterdir() if child.is_dir() and segment_paths(child)])
    if not runs:
        return f"{folder} holds no recording: no {SEGMENT_SUFFIX} file is in it"
    listed = ", ".join(runs[-20:]) if len(runs) <= 20 else f"… {', '.join(runs[-20:])}"
    return f"{folder} holds {len(runs)} runs: choose one of its folders: {listed}"
