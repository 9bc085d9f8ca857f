"""The index's requests as arrays, so that rows, selections and searches of hundreds of thousands take milliseconds.

Read once, then only those that came since and those that still lived. Times are absolute nanoseconds (exact: they stay
below 2⁵³ for a hundred days of a machine's monotonic clock). It must not know what is asked for.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np

from replay.viewer.framing import Array
from replay.viewer.growing import Growing
from replay.viewer.names import Names

FIGURES = ("ttft_ms", "itl_p50_ms", "itl_max_ms", "e2e_ms")
_COLUMNS = (
    *("life", "number", "sequence", "arrival_ns", "end_ns", "priority", "preemptions", "tenant", "reason"),
    *FIGURES,
)
_DTYPES = ("u4", "f8", "f8", "f8", "f8", "i4", "u4", "u4", "u4", *["f8"] * len(FIGURES))
_FIELDS = (
    "life, number, sequence, arrival_ns, end_ns, priority, preemptions, tenant, coalesce(reason, ''), "
    "ttft_ms, itl_p50_ms, itl_max_ms, e2e_ms, request_id"
)
_NEW = f"SELECT {_FIELDS} FROM requests WHERE (life, sequence) > (?, ?) ORDER BY life, sequence"
_ONE = f"SELECT {_FIELDS} FROM requests WHERE life = ? AND number = ?"
_THESE = f"SELECT {_FIELDS} FROM requests WHERE life = ? AND number IN (%s)"
_AT_ONCE = 900  # SQLite takes 999 parameters at least


class Codes:
    """Texts of which many requests share one: tenants, reasons."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return code


class RequestColumns:
    """All lives' requests in the order in which they arrived. A request's place here stays its own.

    ids               by place
    tenants, reasons  texts of the codes; reason "" while it lives
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.ids, self.tenants, self.reasons = Names(), Codes(), Codes()
        self._columns = Growing(_DTYPES)

    def __len__(self) -> int:
        return self._columns.length

    def of(self, name: str) -> Array:
        """One of `_COLUMNS`, by place. end_ns and figures are NaN where they are not known."""
        return self._columns.view(_COLUMNS.index(name))

    def refresh(self, database: sqlite3.Connection) -> bool:
        """True when anything has changed."""
        if len(self) and not self._is_still_there(database):  # the index was begun anew
            self._clear()
        living = np.flatnonzero(np.isnan(self.of("end_ns")))
        lives = self.of("life")[living]
        for life in np.unique(lives):
            places = living[lives == life]
            for first in range(0, len(places), _AT_ONCE):
                self._read_again(database, int(life), places[first : first + _AT_ONCE])
        num = len(self)
        last = (int(self.of("life")[-1]), int(self.of("sequence")[-1])) if num else (0, -1)
        cursor = database.execute(_NEW, last)
        while rows := cursor.fetchmany(20_000):
            self._columns.extend(self._matrix(rows))
            for row in rows:
                self.ids.append(row[-1] or "")
        return bool(len(living)) or len(self) != num

    def _read_again(self, database: sqlite3.Connection, life: int, places: Array) -> None:
        numbers = [int(number) for number in self.of("number")[places]]
        place_of = dict(zip(numbers, places, strict=True))
        rows = database.execute(_THESE % ", ".join("?" * len(numbers)), (life, *numbers)).fetchall()
        if rows:
            self._columns.replace(np.array([place_of[row[1]] for row in rows]), self._matrix(rows))

    def _is_still_there(self, database: sqlite3.Connection) -> bool:
        key = (int(self.of("life")[-1]), int(self.of("number")[-1]))
        row = database.execute(_ONE, key).fetchone()
        return row is not None and row[2] == self.of("sequence")[-1]

    def _matrix(self, rows: Sequence[Any]) -> Array:
        """Rows × columns; what is not known is NaN."""
        columns: list[Any] = list(zip(*rows, strict=True))[:-1]  # the last are the ids
        tenant, reason = _COLUMNS.index("tenant"), _COLUMNS.index("reason")
        columns[tenant] = [self.tenants.code(text or "") for text in columns[tenant]]
        columns[reason] = [self.reasons.code(text) for text in columns[reason]]
        return np.array([np.array(column, np.float64) for column in columns]).T
