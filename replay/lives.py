"""A recording as the lives of its engine processes: each began with an empty core and can be replayed from there.

It reads entries and says where they stop being comparable; it compares nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from engine.core.events import RequestArrived, StepCompleted
from engine.core.vocabulary import CoreKeyframe, Entry, RecordingClosed, RecordingGap, UnknownRecord
from recorder.header import Header
from recorder.reader import Recording, Segment
from recorder.request_entries import arrivals_named, entries_about
from recorder.vault import Contents
from replay.refusal import CannotCompare

Refuse = Callable[[CannotCompare], None]


class Life:
    """One engine process's entries, and its contents where they were kept."""

    def __init__(self, section: Recording) -> None:
        self._section = section

    @property
    def header(self) -> Header:
        return self._section.header

    @property
    def opened_ns(self) -> int:
        """The monotonic time that reports count from."""
        return self.header.created_now_ns

    @property
    def refusal(self) -> CannotCompare | None:
        """Why it cannot be replayed from its beginning: its core was not empty there. None when it was."""
        if self.header.starts_fresh:
            return None
        path = self._section.segments[0].path
        return CannotCompare(
            f"{path.name} begins in mid-run, at sequence {self.header.first_sequence}, and the core's state there is "
            "not recorded",
            f"give the whole run's folder, {path.parent}, if its first segment is still there",
        )

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._section.segments

    def entries(self, from_sequence: int = 0, *, keyframes: bool = False) -> Iterator[Entry]:
        """All that can be read, notices of the recorder included; those before `from_sequence` are left out.

        keyframes   are entries too
        """
        return self._section.entries(from_sequence, keyframes=keyframes)

    def entries_about(self, request: int) -> Iterator[Entry]:
        """All entries about the request and some others; of sealed segments only the part that the index names."""
        return entries_about(self._section, request)

    def arrivals_named(self, request_id: str) -> Iterator[RequestArrived]:
        """Arrivals under this name."""
        return arrivals_named(self._section, request_id)

    def contents(self) -> Contents:
        """Raises NoContents when no vault was kept."""
        return self._section.contents()

    def comparable_entries(self, refuse: Refuse, *, keyframes: bool = False) -> Iterator[Entry]:
        """The entries that hold an event, up to the first place where some are missing or cannot be understood.

        refuse      called with the reason when that place is reached
        keyframes   are entries too, each before the one whose sequence it bears
        """
        expected = self.header.first_sequence
        for entry in self.entries(keyframes=keyframes):
            event = entry.event
            if isinstance(event, CoreKeyframe):
                yield entry
                continue
            if isinstance(event, RecordingClosed):
                continue
            if isinstance(event, RecordingGap):
                refuse(missing(event.first_sequence, event.num_entries, event.cause))
                return
            if entry.sequence != expected:
                refuse(hole(expected, entry.sequence))
                return
            unknown = next((record for record in (event, *entry.decisions) if isinstance(record, UnknownRecord)), None)
            if unknown is not None:
                refuse(unknown_kind(entry.sequence, unknown.kind))
                return
            expected += 1
            yield entry

    @property
    def is_whole(self) -> bool:
        """Nothing is known to be missing, as far as it was read."""
        return self._section.is_complete

    @property
    def is_closed(self) -> bool:
        """The engine process was shut in order, as far as it was read."""
        return self._section.is_closed

    def notes(self) -> list[str]:
        """What the last reading of the entries found missing or damaged."""
        return [str(notice) for notice in self._section.notices]


def missing(first_sequence: int, num_entries: int, cause: str, remedy: str = "") -> CannotCompare:
    return CannotCompare(
        f"{num_entries} entries from sequence {first_sequence} on are missing ({cause}), "
        "so the core's state after them is not known",
        remedy
        or f"everything before sequence {first_sequence} was compared; nothing after it in this engine process can be",
    )


def hole(expected: int, found: int, remedy: str = "") -> CannotCompare:
    return missing(expected, found - expected, "a hole in the sequence", remedy)


def unknown_kind(sequence: int, kind: int) -> CannotCompare:
    return CannotCompare(
        f"the entry at sequence {sequence} holds a record of kind {kind}, which this version does not know",
        "a newer version recorded it: replay it with that one",
    )


class Run:
    """All lives of a recording, in order."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.lives = [Life(section) for section in recording.sections]

    @classmethod
    def open(cls, path: Path) -> "Run":
        """A run's folder or one segment. Raises RecordingError."""
        return cls(Recording.open(path))

    @property
    def is_whole(self) -> bool:
        """Nothing is known to be missing, as far as the lives were read."""
        return self.recording.is_complete and all(life.is_whole for life in self.lives)

    def notes(self) -> tuple[str, ...]:
        """What the last reading of each life found missing or damaged, and segments that could not be opened."""
        unreadable = [str(notice) for notice in self.recording.notices]
        found = unreadable + [note for life in self.lives for note in life.notes()]
        return tuple(dict.fromkeys(found))

    def count_steps(self) -> int:
        """Steps with a recorded result: one pass over all entries."""
        return sum(type(entry.event) is StepCompleted for life in self.lives for entry in life.entries())
