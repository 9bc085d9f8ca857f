"""The index's steps and slices as arrays, which tiles are cut from: read once, then only what has come since.

Times are relative to the life's opening. Figures of a million steps take 60 MB, a million slices 49 MB. It must not
know what is asked for.
"""

import functools
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from replay.viewer.by_request import ByRequest
from replay.viewer.framing import Array
from replay.viewer.growing import Growing
from replay.viewer.pyramid import Figures, Pyramid, num_levels, parts_of
from replay.viewer.sums import Sums

KINDS = ("queued", "prefill", "decode", "preempted", "swapped")
STRIPS = (
    "running",
    "waiting",
    "free_blocks",
    "budget_used",
    "step_ms",
    "execute_ms",
    "sample_ms",
    "beside_ms",
    "swap_ms",
    "prefill_tokens",
    "decode_rows",
)

SETTLED_GROWTH, SETTLED_APART = 1.1, 20_000  # all are sorted again when so many more have come

_STEPS = """
SELECT step, planned_ns - :opened, coalesce(completed_ns - :opened, -1), running, waiting, free_blocks,
       budget - budget_left, (completed_ns - planned_ns) / 1e6, execute_ns / 1e6, sample_ns / 1e6, beside_ns / 1e6,
       swap_ns / 1e6, prefill_tokens, decode_rows
FROM steps WHERE life = :life AND step >= :after ORDER BY step
"""
_SLICES = """
SELECT id, request, CASE kind WHEN 'queued' THEN 0 WHEN 'prefill' THEN 1 WHEN 'decode' THEN 2 WHEN 'preempted' THEN 3
       ELSE 4 END, is_open, from_ns - :opened, to_ns - :opened, from_step, to_step, tokens
FROM slices WHERE life = :life AND id > :after ORDER BY id
"""


class StepColumns:
    """One life's steps; the last ones are read again until they are complete."""

    def __init__(self, life: int, opened_ns: int) -> None:
        self._life, self._opened_ns = life, opened_ns
        self._columns = Growing(("f8", "f8", "f8", *["f4"] * len(STRIPS)))
        self._pyramids = {name: Pyramid() for name in STRIPS}

    @property
    def steps(self) -> Array:
        return self._columns.view(0)

    @property
    def planned_ns(self) -> Array:
        return self._columns.view(1)

    @property
    def completed_ns(self) -> Array:
        """-1: not yet."""
        return self._columns.view(2)

    def strip(self, name: str) -> Array:
        return self._columns.view(3 + STRIPS.index(name))

    def figures(self, names: Sequence[str], begins: Array, ends: Array) -> Iterator[tuple[str, Figures]]:
        """Of each stretch [begins, ends) of steps by their places here."""
        parts = parts_of(begins, ends, num_levels(self._columns.length))
        for name in names:
            values, pyramid = self.strip(name), self._pyramids[name]
            pyramid.take(values)
            yield name, pyramid.over(values, parts, len(begins))

    def save(self, path: Path) -> None:
        self._columns.save(path)

    def load(self, path: Path, database: sqlite3.Connection) -> None:
        """As they were saved, if the index still says so of the last step; `refresh` reads the rest."""
        if not self._columns.load(path):
            return
        sql = "SELECT planned_ns - ? FROM steps WHERE life = ? AND step = ?"
        found = database.execute(sql, (self._opened_ns, self._life, int(self.steps[-1]))).fetchone()
        self._cut(0 if found is None or found[0] != self.planned_ns[-1] else self._columns.length)

    def refresh(self, database: sqlite3.Connection) -> bool:
        """True when anything has changed."""
        complete = self._columns.length
        while complete and self.completed_ns[complete - 1] < 0 and self._columns.length - complete < 8:
            complete -= 1
        known = self._columns.length
        after = float(self.steps[complete - 1]) + 1 if complete else 0
        self._cut(complete)
        values: dict[str, Any] = {"life": self._life, "opened": self._opened_ns, "after": after}
        self._columns.take(database.execute(_STEPS, values))
        return self._columns.length != known or (known > complete and self.completed_ns[-1] >= 0)

    def _cut(self, length: int) -> None:
        self._columns.cut(length)
        for pyramid in self._pyramids.values():
            pyramid.cut(length)


class SliceColumns:
    """One life's slices by request, each request's in order of time; those that go on are read again each time."""

    def __init__(self, life: int, opened_ns: int) -> None:
        self._life, self._opened_ns = life, opened_ns
        self._columns = Growing(("f8", "u4", "u1", "u1", "f8", "f8", "u4", "u4", "u4"))
        self._settled, self._num_settled = _nothing(), 0  # of slices that stay as they are; sorted once in a while
        self._recent = _nothing()  # of those behind them; sorted at each change
        self._sums: Sums | None = None

    def save(self, path: Path) -> None:
        self._columns.save(path)

    def load(self, path: Path, database: sqlite3.Connection) -> None:
        """As they were saved, if the index still says so of the last slice; `refresh` reads the rest."""
        if not self._columns.load(path):
            return
        last = tuple(float(self._columns.view(column)[-1]) for column in (0, 1, 4))
        sql = "SELECT id, request, from_ns - ? FROM slices WHERE life = ? AND id = ?"
        if tuple(database.execute(sql, (self._opened_ns, self._life, int(last[0]))).fetchone() or ()) != last:
            self._columns.cut(0)
        self._sort(self._columns.length)

    def refresh(self, database: sqlite3.Connection) -> bool:
        """True when anything has changed. The indexer gives a slice that is told again a new id."""
        known = self._columns.length
        is_open = np.flatnonzero(self._columns.view(3))
        closed = int(is_open[0]) if len(is_open) else known
        last = float(self._columns.view(0)[closed - 1]) if closed else 0
        self._columns.cut(closed)
        values: dict[str, Any] = {"life": self._life, "opened": self._opened_ns, "after": last}
        self._columns.take(database.execute(_SLICES, values))
        changed = self._columns.length != known or closed != known
        if changed:
            self._sort(closed)
        return changed

    def _sort(self, num_closed: int) -> None:
        """num_closed: so many are as they were before."""
        self._sums = None
        length = self._columns.length
        if num_closed < self._num_settled or length > self._num_settled * SETTLED_GROWTH + SETTLED_APART:
            is_open = np.flatnonzero(self._columns.view(3))
            self._num_settled = int(is_open[0]) if len(is_open) else length
            self._settled = self._by_request(0, self._num_settled)
        self._recent = self._by_request(self._num_settled, length)

    def _by_request(self, first: int, beyond: int) -> ByRequest:
        return ByRequest(self._columns.view(1)[first:beyond], self._columns.view(4)[first:beyond], first)

    def of(self, requests: Array) -> tuple[Array, Array]:
        """(place in `requests`, number of the slice) for all slices of these requests, in their order."""
        places, slices = self._settled.of(requests)
        more_places, more_slices = self._recent.of(requests)
        if not len(more_places):
            return places, slices
        places, slices = np.concatenate((places, more_places)), np.concatenate((slices, more_slices))
        order = np.lexsort((self._columns.view(4)[slices], places))
        return places[order], slices[order]

    @property
    def sums(self) -> Sums:
        """Over all slices, from when it is first asked for until they change."""
        if self._sums is None:
            everything = np.arange(self._columns.length)
            stretches = functools.partial(self.stretches, everything)
            self._sums = Sums(KINDS, self.kinds(everything), self.tokens(everything), stretches)
        return self._sums

    def kinds(self, slices: Array) -> Array:
        return self._columns.view(2)[slices]

    def are_open(self, slices: Array) -> Array:
        return self._columns.view(3)[slices]

    def tokens(self, slices: Array) -> Array:
        return self._columns.view(8)[slices]

    def stretches(self, slices: Array, axis: str) -> tuple[Array, Array]:
        """Where each begins and ends: nanoseconds, or steps, of which one that computed covers its last too."""
        if axis == "time":
            return self._columns.view(4)[slices], self._columns.view(5)[slices]
        kinds = self.kinds(slices)
        computes = (kinds == KINDS.index("prefill")) | (kinds == KINDS.index("decode"))
        return self._columns.view(6)[slices].astype("f8"), self._columns.view(7)[slices].astype("f8") + computes


def _nothing() -> ByRequest:
    return ByRequest(np.empty(0, np.uint32), np.empty(0))
