"""What a recording lacks: found by following sequences, segment numbers and digests, told as notices.

It sees entries go by and never changes or withholds one.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from engine.core.vocabulary import CoreKeyframe, Entry, RecordingClosed, RecordingGap
from recorder.frames import Damage
from recorder.header import Header
from recorder.segment_files import live_digest

_NOTICES = frozenset({RecordingGap, RecordingClosed, CoreKeyframe})


class NoticeKind(StrEnum):
    TORN = "torn"  # a file's frames end before the file does
    INDEX_DAMAGED = "index_damaged"  # of a sealed segment: its entries are read one after the other
    UNREADABLE = "unreadable"  # a segment whose header is damaged: none of it can be read
    SEGMENT_MISSING = "segment_missing"
    DIGEST_DIFFERS = "digest_differs"  # the segment before is not the file that this one continued
    SEQUENCE_HOLE = "sequence_hole"
    GAP = "gap"  # the recorder itself says that it lost entries
    NOT_CLOSED = "not_closed"  # no RecordingClosed at the end of an engine process
    MID_RUN = "mid_run"  # the first segment here goes on from one that is not here


class Notice(NamedTuple):
    """Something a reader of the recording should know.

    offset, num_bytes_lost   where in the file, and how much of it is unreadable; 0 where no bytes are concerned
    """

    kind: NoticeKind
    path: Path
    offset: int
    num_bytes_lost: int
    text: str

    def __str__(self) -> str:
        if self.kind is NoticeKind.TORN:
            return f"{self.path}: {self.num_bytes_lost} bytes from offset {self.offset} on are lost: {self.text}"
        return self.text


class MissingRange(NamedTuple):
    """Entries that are not in the recording: num_entries of them from first_sequence on; None when nobody can know."""

    segment_number: int
    first_sequence: int
    num_entries: int | None
    cause: str


class Continuity:
    """Follows one pass over a recording."""

    def __init__(self, notices: Iterable[Notice]) -> None:
        self.notices: list[Notice] = list(notices)
        self.missing: list[MissingRange] = []
        self.is_closed = False
        self._path: Path | None = None
        self._header: Header | None = None
        self._expected = 0
        self._torn: str | None = None  # why the segment before ended early, until it is known what that cost

    def begin_segment(self, path: Path, header: Header) -> None:
        before, before_path = self._header, self._path
        self._path, self._header = path, header
        if before is None or before_path is None:
            if not header.starts_fresh:
                self._note(
                    NoticeKind.MID_RUN, f"{path} goes on from segment {header.segment_number - 1}, not given here"
                )
            self._expected = header.first_sequence
            return
        self._compare_segments(before, before_path, header)
        if header.starts_fresh:
            self._end_process(before.segment_number, before_path)
            self._expected = header.first_sequence
            self.is_closed = False
        elif header.first_sequence == self._expected:
            self._torn = None  # the torn tail held no whole entry: what it was to hold stands here

    def skip_to(self, sequence: int) -> None:
        """Those before it are not read, on purpose."""
        self._expected = sequence

    def see(self, entry: Entry) -> None:
        """In the hot path of reading: two comparisons for an entry as expected."""
        sequence = entry.sequence
        if sequence != self._expected:
            self._note_hole(sequence)
        self._expected = sequence + 1
        event_type = type(entry.event)
        if event_type in _NOTICES:
            self._see_notice(entry.event)

    def end_segment(self, path: Path, damages: Sequence[Damage], *, is_torn: bool, index_fault: str = "") -> None:
        """
        is_torn       entries may be missing behind the last one read
        index_fault   why a sealed segment's index or footer cannot be read
        """
        if is_torn:
            self._torn = damages[-1].reason
        for offset, num_bytes_lost, reason in damages:
            self.notices.append(Notice(NoticeKind.TORN, path, offset, num_bytes_lost, reason))
        if index_fault:
            text = f"{path}: footer or index cannot be read, which costs time and no entry: {index_fault}"
            self.notices.append(Notice(NoticeKind.INDEX_DAMAGED, path, 0, 0, text))

    def end_recording(self) -> None:
        if self._header is not None and self._path is not None:
            self._end_process(self._header.segment_number, self._path)

    def _end_process(self, segment_number: int, path: Path) -> None:
        """No entry of this engine process follows: what a torn tail cost stays unknown."""
        if self._torn is not None:
            self.missing.append(MissingRange(segment_number, self._expected, None, self._torn))
            self._torn = None
        if not self.is_closed:
            self._note(
                NoticeKind.NOT_CLOSED,
                f"{path} does not end with RecordingClosed: the process was killed or still runs, "
                "and entries it had not appended are unknown",
                path,
            )

    def _compare_segments(self, before: Header, before_path: Path, header: Header) -> None:
        number = header.segment_number
        if number != before.segment_number + 1:
            self._note(
                NoticeKind.SEGMENT_MISSING,
                f"segment {number} follows segment {before.segment_number}: those between are not here",
            )
        elif header.previous_segment_digest != (live_digest(before_path) or header.previous_segment_digest):
            self._note(
                NoticeKind.DIGEST_DIFFERS,
                f"{before_path} is not as it was when segment {number} was begun: it was changed, cut or exchanged",
            )

    def _see_notice(self, event: object) -> None:
        if isinstance(event, RecordingGap):
            self._expected = event.first_sequence + event.num_entries
            self._lack(event.first_sequence, event.num_entries, event.cause)
            self._note(
                NoticeKind.GAP,
                f"{event.num_entries} entries from sequence {event.first_sequence} on were not recorded: {event.cause}",
            )
        elif isinstance(event, CoreKeyframe):
            self._expected -= 1  # it bears the sequence of the entry behind it
        else:
            self.is_closed = True

    def _note_hole(self, sequence: int) -> None:
        num_entries = sequence - self._expected
        if num_entries > 0:
            self._lack(self._expected, num_entries, self._torn or "hole in the sequence")
            text = f"{num_entries} entries from sequence {self._expected} on are missing before {sequence}"
        else:
            text = f"sequence {sequence} follows {self._expected - 1}: entries stand out of order or twice"
        self._torn = None
        self._note(NoticeKind.SEQUENCE_HOLE, text)

    def _lack(self, first_sequence: int, num_entries: int, cause: str) -> None:
        assert self._header is not None, "a segment is begun before its entries are seen"
        self.missing.append(MissingRange(self._header.segment_number, first_sequence, num_entries, cause))

    def _note(self, kind: NoticeKind, text: str, path: Path | None = None) -> None:
        path = path or self._path
        assert path is not None, "a segment is begun before anything is noted"
        self.notices.append(Notice(kind, path, 0, 0, text))
