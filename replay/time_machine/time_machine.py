"""`TimeMachine`: a recording's states by step, sequence or time, and its histories.

It brings the index up to date when it is opened; what is recorded after that it sees after `refresh`. Not for several
threads at once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.core.decisions import StepPlanned
from engine.core.limits import Limits
from engine.core.policies.interface import PolicyFactory
from engine.core.vocabulary import Entry, RecordingClosed
from replay.index.recording_index import RecordingIndex
from replay.own_policy import recorded_policies
from replay.refusal import CannotCompare
from replay.time_machine.histories import Histories
from replay.time_machine.places import Extent, Place, extents, last_plan_before, of_step
from replay.time_machine.rewinding import Behind, Rewinder
from replay.time_machine.state import State


class TimeMachine:
    """
    lives      what is known of each engine process, counted from 1
    database   the index, for questions of one's own (`replay/index/schema.py`)
    """

    def __init__(self, recording: Path, index_folder: Path | None = None, *, verb: str = "index") -> None:
        """Builds the index where it is lacking, with a progress line. Raises RecordingError, IndexUnwritable."""
        self._index = RecordingIndex(recording, index_folder, verb=verb)
        self.database = self._index.connect()
        self.refresh()

    def close(self) -> None:
        self.database.close()

    def refresh(self) -> None:
        """Take in what was recorded since."""
        self._index.update()
        self.lives: list[Extent] = extents(self.database)
        self._rewinders = {
            number: Rewinder(number, life, self.database) for number, life in enumerate(self._index.run.lives, 1)
        }
        self._policies: dict[int, PolicyFactory] = {}

    def extent(self, life: int = 0) -> Extent:
        """Of an engine process; 0: of the last one. Raises CannotCompare."""
        number = life or len(self.lives)
        if not 1 <= number <= len(self.lives):
            raise CannotCompare(
                f"the recording holds {len(self.lives)} engine processes, none of number {number}",
                f"they are counted from 1 to {len(self.lives)}",
            )
        return self.lives[number - 1]

    def histories(self, life: int = 0) -> Histories:
        return Histories(self.database, self.extent(life).life)

    # ── states ───────────────────────────────────────────────────────────────────────────────────────────────────

    def at_step(self, step: int, life: int = 0, *, before: bool = False) -> State:
        """Just after the step was planned, so it is under way, or planned ahead of the one that is; `before`: before
        the entry that planned it.

        Raises CannotCompare: there is no such step, or its state is not known; Departed.
        """
        number = self.extent(life).life
        return self.at_sequence(of_step(self.database, number, step), number, before=before)

    def at_sequence(self, sequence: int, life: int = 0, *, before: bool = False) -> State:
        """Just after the entry, or before it. Raises as `at_step`."""
        extent = self.extent(life)
        if not extent.first_sequence <= sequence <= extent.last_sequence:
            raise CannotCompare(
                f"sequence {sequence} is not in the recording of engine process {extent.life}",
                f"its entries are {extent.first_sequence} to {extent.last_sequence}",
            )
        return self.at_place(Place(extent.life, sequence - before))

    def at_time(self, now_ns: int, life: int = 0) -> State:
        """After the last entry that was handled by then, of the process that ran then if none is named."""
        number = life or max([each.life for each in self.lives if each.opened_ns <= now_ns], default=1)
        extent = self.extent(number)
        sequence = last_plan_before(self.database, number, now_ns)
        last = extent.first_sequence - 1 if sequence is None else sequence
        for entry in self._index.run.lives[number - 1].entries(max(0, last)):
            if entry.now_ns > now_ns or isinstance(entry.event, RecordingClosed):
                break
            last = max(last, entry.sequence)
        return self.at_place(Place(number, last))

    def at_end(self, life: int = 0) -> State:
        extent = self.extent(life)
        return self.at_place(Place(extent.life, extent.last_sequence))

    def at_beginning(self, life: int = 0) -> State:
        """Before the first entry, or at the first that is known."""
        extent = self.extent(life)
        return self.at_place(Place(extent.life, extent.first_sequence - 1))

    def at_first_known(self, life: int = 0) -> State:
        """The beginning, or behind the first keyframe of a recording that begins in mid-run."""
        extent = self.extent(life)
        if self._index.run.lives[extent.life - 1].header.starts_fresh:
            return self.at_beginning(extent.life)
        row = self.database.execute("SELECT min(sequence) FROM keyframes WHERE life = ?", (extent.life,)).fetchone()
        return self.at_beginning(extent.life) if row[0] is None else self.at_sequence(row[0], extent.life)

    def forward(self, place: Place) -> Iterator[State]:
        """The state behind each entry after this place; each is one's own only until the next is asked for.

        Cheaper than one `at_sequence` after the other, for all are the same core. Raises as `at_step`.
        """
        for behind in self._rewinders[place.life].from_before(place.sequence + 1):
            assert behind.entry is not None, "only a life's beginning has none"
            if behind.entry.sequence > place.sequence:
                yield self._as_state(place.life, behind)

    def backward(self, place: Place) -> Iterator[tuple[Place, Place]]:
        """Stretches of the places before this one, the nearest first: first and last place of each.

        Each is quickly gone through forward. They end at the life's beginning, or where states begin to be known.
        """
        rewinder, life = self._rewinders[place.life], place.life
        beginning, last = self.extent(life).first_sequence - 1, place.sequence - 1
        while last > beginning:
            try:
                first = rewinder.base_before(last)
            except CannotCompare:
                return
            yield Place(life, first), Place(life, last)
            last = first - 1
        if last == beginning and self._index.run.lives[life - 1].header.starts_fresh:
            yield Place(life, beginning), Place(life, beginning)

    def at_place(self, place: Place) -> State:
        """Raises as `at_step`."""
        return self._as_state(place.life, self._rewinders[place.life].behind(place.sequence))

    def entries(self, life: int, first: int, last: int) -> Iterator[Entry]:
        """As recorded, from one sequence to another; what is missing is left out."""
        for entry in self._index.run.lives[life - 1].entries(max(0, first)):
            if entry.sequence > last:
                return
            yield entry

    def _as_state(self, life: int, behind: Behind) -> State:
        extent = self.lives[life - 1]
        entry: Any = behind.entry
        header = self._index.run.lives[life - 1].header
        if life not in self._policies:
            self._policies[life] = recorded_policies(header)
        return State(
            life,
            extent.first_sequence - 1 if entry is None else entry.sequence,
            vars(behind.core.planner)["_num_steps"] - 1,
            extent.opened_ns if entry is None else entry.now_ns,
            extent.opened_ns,
            entry,
            behind.core,
            Limits.from_dict(header.limits),
            self._policies[life],
            self.database,
        )


def planned_in(state: State) -> StepPlanned | None:
    """The step that the state's entry planned; None when it planned none."""
    decisions = () if state.entry is None else state.entry.decisions
    return decisions[-1] if decisions and isinstance(decisions[-1], StepPlanned) else None
