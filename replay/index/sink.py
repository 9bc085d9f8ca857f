"""Rows on their way into the index. While entries are read again only to know where things stood, none is kept.

It knows tables by their names and the order of their columns, not what they mean.
"""

import sqlite3
from typing import Any

_NUM_COLUMNS = {
    "requests": 23,
    "steps": 21,
    "slices": 10,
    "decisions": 12,
    "preemptions": 13,
    "marks": 8,
    "block_events": 8,
    "keyframes": 4,
}
_WITHOUT_ID = {
    "slices": "life, request, kind, from_ns, to_ns, from_step, to_step, tokens, detail, is_open",
    "marks": "life, sequence, now_ns, until_ns, step, kind, request, detail",
    "block_events": "life, block, sequence, step, to_step, kind, request, is_open",
}


_COUNT_REASON = """
INSERT INTO reasons VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (life, kind, reason) DO UPDATE SET count = count + excluded.count
"""


class Sink:
    """
    is_shut   rows are dropped: they are in the index already
    """

    def __init__(self) -> None:
        self.is_shut = False
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _NUM_COLUMNS}
        self._reasons: dict[tuple[int, str, str], list[int]] = {}

    def add(self, table: str, *values: Any) -> None:
        if not self.is_shut:
            self._rows[table].append(values)

    def count_reason(self, life: int, kind: str, reason: str, now_ns: int, step: int) -> None:
        """Once more; when it was first stays."""
        if not self.is_shut:
            self._reasons.setdefault((life, kind, reason), [0, now_ns, step])[0] += 1

    def end_thrashing(self, life: int, now_ns: int) -> None:
        """The mark that lasts until now; a row without a kind, for it must keep its place among them."""
        self.add("marks", life, -1, now_ns, None, -1, "", -1, "")

    def discard(self) -> None:
        """What a reading that came to nothing has left."""
        for rows in self._rows.values():
            rows.clear()
        self._reasons.clear()

    def write(self, database: sqlite3.Connection) -> None:
        """All rows, into the transaction that the database is in."""
        for table, rows in self._rows.items():
            if table == "marks":
                self._write_marks(database, rows)
            elif rows:
                database.executemany(_statement(table), rows)
            rows.clear()
        database.executemany(_COUNT_REASON, [(*key, *values) for key, values in self._reasons.items()])
        self._reasons.clear()

    def _write_marks(self, database: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
        for row in rows:
            if row[5]:
                database.execute(_statement("marks"), row)
            else:
                database.execute(
                    "UPDATE marks SET until_ns = ? WHERE life = ? AND kind = 'thrashing' AND until_ns IS NULL",
                    (row[2], row[0]),
                )


def _statement(table: str) -> str:
    columns = f" ({_WITHOUT_ID[table]})" if table in _WITHOUT_ID else ""
    verb = "INSERT" if columns else "INSERT OR REPLACE"
    return f"{verb} INTO {table}{columns} VALUES ({', '.join('?' * _NUM_COLUMNS[table])})"
