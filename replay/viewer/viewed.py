"""The recording that is looked at: its index, the arrays read from it, and how far both have come.

Whoever asks may do so from any thread. It must not know HTTP, nor what is asked.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.clock import Clock
from replay.index.recording_index import RecordingIndex
from replay.lives import Life, Run
from replay.time_machine.state import State
from replay.viewer.columns import SliceColumns, StepColumns
from replay.viewer.errors import BadQuestion
from replay.viewer.framing import Array
from replay.viewer.recorder_at_work import is_recorded_into
from replay.viewer.requests import RequestColumns
from replay.viewer.rows import in_order
from replay.viewer.states import Found, States

_MIN_STEPS_KEPT = 20_000
_MAX_ORDERS = 8  # kept: the one that is looked at, and those before


@dataclass(slots=True)
class LifeColumns:
    """last_ns: of the last step that is known, since the opening."""

    life: int
    opened_ns: int
    steps: StepColumns
    slices: SliceColumns

    @property
    def last_ns(self) -> float:
        completed, planned = self.steps.completed_ns, self.steps.planned_ns
        return max(float(completed[-1]), float(planned[-1])) if len(planned) else 0.0


@dataclass(slots=True)
class IndexState:
    """
    state         building, ready, following, failed
    num_entries   read by the indexer since it began
    fraction      of the recording that is indexed; None until the first entries are
    """

    state: str = "building"
    num_entries: int = 0
    fraction: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Growth:
    """What came at the end of a life's steps: from_step to to_step."""

    life: int
    from_step: int
    to_step: int
    now_ns: float


@dataclass(slots=True)
class Viewed:
    """
    path         of the recording; shown_path: as commands name it
    requests     of all lives; to be read within `columns`
    states       the core's, at any step
    generation   another one whenever the arrays have changed
    beside       name of the recording that it is compared with; "" for none; beside_path: as commands name it
    """

    path: Path
    index: RecordingIndex
    clock: Clock
    states: States
    shown_path: Path
    generation: int = 0
    beside: str = ""
    beside_path: Path | None = None
    state: IndexState = field(default_factory=IndexState)
    _lives: dict[int, LifeColumns] = field(default_factory=dict)
    requests: RequestColumns = field(default_factory=RequestColumns)
    _orders: dict[tuple[Any, ...], Array] = field(default_factory=dict)
    _end_notes: tuple[int, list[str]] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def open(cls, path: Path, clock: Clock, folder: Path | None = None, shown_path: Path | None = None) -> "Viewed":
        """Reads headers only. `folder`: where the index is kept. Raises RecordingError, IndexUnwritable."""
        return cls(path, RecordingIndex(path, folder), clock, States(path, folder), shown_path or path)

    @property
    def run(self) -> Run:
        """As it is now."""
        return Run.open(self.path)

    @property
    def is_live(self) -> bool:
        return is_recorded_into(self.path)

    def end_notes(self) -> list[str]:
        """What is to be known of how it ends, once nobody records into it: it was not closed, its tail is torn."""
        if self.state.state not in ("ready", "following") or self.is_live:
            return []
        if self._end_notes is None or self._end_notes[0] != self.generation:
            self._end_notes = (self.generation, _end_notes(self.run.lives[-1], self.index) if self.run.lives else [])
        return self._end_notes[1]

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """The index, read-only."""
        with closing(self.index.connect()) as database:
            yield database

    @contextmanager
    def columns(self, life: int) -> Iterator[LifeColumns]:
        """Nothing changes in them meanwhile. Raises BadQuestion when that life is not (yet) known."""
        with self._lock:
            if not self._lives:
                self.refresh()
            found = self._lives.get(life)
            if found is None:
                known = f"1 to {len(self._lives)}" if self._lives else "none is indexed yet"
                raise BadQuestion(f"life {life} is not in this recording: {known}", "life", 404)
            yield found

    @contextmanager
    def every_life(self) -> Iterator[dict[int, int]]:
        """Life → its opening; nothing changes in `requests` meanwhile."""
        with self._lock:
            if not self._lives:
                self.refresh()
            yield {life: columns.opened_ns for life, columns in self._lives.items()}

    def opened_ns(self, life: int) -> int:
        """Raises BadQuestion."""
        with self.columns(life) as columns:
            return columns.opened_ns

    def at_step(self, life: int, step: int, of_state: Callable[[State], Found]) -> tuple[Found | None, str]:
        """As `States.read`; while the index is being built nothing is known."""
        if self.state.state == "building":
            return None, "the index is still being built: ask again when it is ready"
        return self.states.read(life, step, of_state)

    def refresh(self) -> list[Growth]:
        """Read what the index has grown by."""
        with self._lock, self.database() as database:
            if not _has_tables(database):
                return []
            grown = [self._refresh_life(database, *row) for row in _lives(database)]
            found = [growth for growth in grown if growth is not None]
            if self.requests.refresh(database) or found:
                self.generation += 1
                self._orders.clear()
            return found

    def _refresh_life(self, database: sqlite3.Connection, life: int, opened_ns: int) -> Growth | None:
        columns = self._lives.get(life)
        if columns is None or columns.opened_ns != opened_ns:
            columns = LifeColumns(life, opened_ns, StepColumns(life, opened_ns), SliceColumns(life, opened_ns))
            self._lives[life] = columns
            columns.steps.load(self._kept(life, "steps"), database)
            columns.slices.load(self._kept(life, "slices"), database)
            self.generation += 1
        before = len(columns.steps.steps)
        changed = columns.steps.refresh(database)
        if not (columns.slices.refresh(database) | changed):
            return None
        steps = columns.steps.steps
        first, last = (int(steps[min(before, len(steps) - 1)]), int(steps[-1])) if len(steps) else (0, 0)
        return Growth(life, first, last, columns.last_ns)

    def keep(self) -> None:
        """Save the arrays beside the index, for they are read again much faster; not where the disk is full."""
        with self._lock, contextlib.suppress(OSError):
            for life, columns in self._lives.items():
                if len(columns.steps.steps) >= _MIN_STEPS_KEPT:
                    columns.steps.save(self._kept(life, "steps"))
                    columns.slices.save(self._kept(life, "slices"))

    def _kept(self, life: int, what: str) -> Path:
        return self.index.path.with_suffix(f".life{life}-{what}.npz")

    def order(self, life: int, group: str, wanted: str, alive: tuple[float, float] | None) -> Array:
        """Places of requests in the order of their rows; `alive` since the opening."""
        key = (life, group, wanted, alive)
        with self.columns(life) as columns:
            if key not in self._orders:
                if len(self._orders) >= _MAX_ORDERS:
                    self._orders.pop(next(iter(self._orders)))
                absolute = None if alive is None else (alive[0] + columns.opened_ns, alive[1] + columns.opened_ns)
                self._orders[key] = in_order(self.requests, life, columns.opened_ns, group, wanted, absolute)
            return self._orders[key]


def _end_notes(life: Life, index: RecordingIndex) -> list[str]:
    with closing(index.connect()) as database:
        (last,) = database.execute("SELECT coalesce(max(last_sequence), 0) FROM lives").fetchone()
    for _entry in life.entries(max(life.header.first_sequence, last)):
        pass
    cut = "it was not closed: its engine was killed, or the recording is cut off here"
    return [*([] if life.is_closed else [cut]), *life.notes()]


def _has_tables(database: sqlite3.Connection) -> bool:
    (num,) = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'lives'").fetchone()
    return bool(num)


def _lives(database: sqlite3.Connection) -> list[tuple[int, int]]:
    return [
        (life, opened_ns) for life, opened_ns in database.execute("SELECT life, opened_ns FROM lives ORDER BY life")
    ]
