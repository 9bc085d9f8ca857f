"""The core behind any entry of a life: from the nearest known state on, event after event, as the engine ran it.

What it decides on the way is compared with what was recorded: a state that is not the recorded one is never shown.
"""

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.thawing import thaw
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import CoreKeyframe, Entry, RecordingClosed, RecordingGap, UnknownRecord
from replay.lives import Life, hole, missing, unknown_kind
from replay.older_writer import as_written
from replay.own_policy import recorded_core, recorded_policies, thawed_core
from replay.refusal import CannotCompare
from replay.time_machine.checkpoints import Checkpoints
from replay.time_machine.places import keyframe_before


class Departed(CannotCompare):
    """The core of this version decides otherwise than recorded, so states from there on are not known."""

    def __init__(self, sequence: int, how: str) -> None:
        super().__init__(
            f"at sequence {sequence} the core {how}: states from there on are not those of the recorded run",
            "reprise check says how they differ; go to a place before it, or use the version that recorded it",
        )
        self.sequence = sequence


class Behind(NamedTuple):
    """The core after an entry; `entry` None at the life's beginning. The core is the caller's own until it goes on."""

    core: Core
    entry: Entry | None


class Rewinder:
    """One life's states."""

    def __init__(self, number: int, life: Life, database: sqlite3.Connection) -> None:
        self._number = number
        self._life = life
        self._database = database
        self._checkpoints = Checkpoints()
        self._as_written = as_written(life.header.schema)

    def behind(self, sequence: int) -> Behind:
        """The core of its own after this entry. Raises CannotCompare, Departed."""
        first = self._life.header.first_sequence
        if sequence < first:
            return Behind(self._core_before(first, self._life.entries(first, keyframes=True)), None)
        for behind in self.from_before(sequence):
            if behind.entry is not None and behind.entry.sequence == sequence:
                self._checkpoints.keep(behind.core, sequence + 1)
                return behind
        raise CannotCompare(f"the recording ends before sequence {sequence}", "go to an earlier place")

    def from_before(self, sequence: int) -> Iterator[Behind]:
        """The one core after each entry, from some place before this one to the end. Raises CannotCompare, Departed.

        It is given out while it stands there, and goes on with the next.
        """
        base, core, entries = self._begin(sequence)
        self._checkpoints.begin_at(base, sequence)
        expected = base
        for entry in entries:
            if isinstance(entry.event, RecordingClosed | CoreKeyframe):
                continue
            self._refuse_unknown(entry, expected)
            self._checkpoints.pass_by(core, entry.sequence)
            self._handle(core, entry)
            expected = entry.sequence + 1
            yield Behind(core, entry)

    def base_before(self, sequence: int) -> int:
        """The last place before this entry from which `from_before` would begin: its sequence."""
        return self._base(sequence)

    def _begin(self, sequence: int) -> tuple[int, Core, Iterator[Entry]]:
        """The nearest base of which a core can be made, that, and what follows. Raises CannotCompare: there is none."""
        while True:
            base = self._base(sequence)
            entries = self._life.entries(base, keyframes=True)
            try:
                return base, self._core_before(base, entries), entries
            except CannotCompare:
                if base <= self._life.header.first_sequence:
                    raise
                sequence = base - 1  # a keyframe of a broken state, or of another version: from an earlier one

    def _base(self, sequence: int) -> int:
        """The last entry at or before this one whose state before it is known."""
        header = self._life.header
        keyframe = keyframe_before(self._database, self._number, sequence)
        found = [self._checkpoints.nearest(sequence), keyframe, header.first_sequence if header.starts_fresh else None]
        known = [each for each in found if each is not None]
        if known:
            return max(known)
        assert self._life.refusal is not None, "it does not start fresh"
        raise self._life.refusal

    def _core_before(self, sequence: int, entries: Iterator[Entry]) -> Core:
        """
        entries   from that one on, of which a keyframe before it is taken
        """
        header = self._life.header
        if self._checkpoints.nearest(sequence) == sequence:
            state = self._checkpoints.state(sequence)
            try:
                return thaw(Limits.from_dict(header.limits), recorded_policies(header), state)
            except KeyframeError as error:
                raise CannotCompare(f"a state cannot be made again: {error}") from error
        if sequence == header.first_sequence and header.starts_fresh:
            return recorded_core(header)
        for entry in entries:
            if isinstance(entry.event, CoreKeyframe) and entry.sequence == sequence:
                return thawed_core(header, entry.event)
            if entry.sequence >= sequence and not isinstance(entry.event, CoreKeyframe):
                break
        raise CannotCompare(f"the keyframe at sequence {sequence} cannot be read any more", "open the recording again")

    def _refuse_unknown(self, entry: Entry, expected: int) -> None:
        event = entry.event
        if isinstance(event, RecordingGap):
            raise missing(event.first_sequence, event.num_entries, event.cause, _GO_BEHIND)
        if entry.sequence != expected:
            raise hole(expected, entry.sequence, _GO_BEHIND)
        for record in (event, *entry.decisions):
            if isinstance(record, UnknownRecord):
                raise unknown_kind(entry.sequence, record.kind)

    def _handle(self, core: Core, entry: Entry) -> None:
        try:
            decided = core.handle(entry.event, entry.now_ns)  # type: ignore[arg-type]  # notices were refused before
        except Exception as error:  # whatever it is, the recorded run did not raise it
            raise Departed(entry.sequence, f"raises {type(error).__name__}: {error}") from error
        if self._as_written(decided) != entry.decisions:
            raise Departed(entry.sequence, "decides otherwise than recorded")


_GO_BEHIND = "go to a place behind the next keyframe, where there is one, or before what is missing"
