"""Which requests are rows of the timeline, and in which order: by group, in each by arrival.

The order depends on life, group and filter alone, so that it stands still while the view moves.
"""

import sqlite3
from typing import Any, NamedTuple

import numpy as np

from replay.viewer.framing import Array

GROUPS = ("none", "tenant", "state", "priority")
LIVES = "live"
_GROUP_COLUMNS = {
    "none": "''",
    "tenant": "tenant",
    "state": f"coalesce(reason, '{LIVES}')",
    "priority": "priority",
}
_COLUMNS = "number, request_id, tenant, priority, arrival_ns, end_ns, reason"


class Row(NamedTuple):
    """
    arrival_ns, end_ns   since the life's opening; end_ns and reason None while it lives
    """

    row: int
    request: int
    request_id: str
    tenant: str
    priority: int
    arrival_ns: int
    end_ns: int | None
    reason: str | None
    group: str


def numbers_in_order(
    database: sqlite3.Connection, life: int, group: str, wanted: str, alive: tuple[float, float] | None = None
) -> Array:
    """Request numbers, u32.

    wanted   as `condition` reads it
    alive    only those that live then (absolute nanoseconds)
    Of a life before, those that the engine of this one took over are among them.
    """
    where, values = condition(wanted)
    if alive is not None:
        where += " AND arrival_ns <= :alive_to AND coalesce(end_ns, 9e18) >= :alive_from"
        values |= {"alive_from": alive[0], "alive_to": alive[1]}
    sql = (
        "SELECT number FROM requests WHERE (life = :life OR (life < :life AND coalesce(end_ns, 9e18) > "
        f"(SELECT opened_ns FROM lives WHERE life = :life))) AND {where} "  # names of columns only
        f"ORDER BY {_GROUP_COLUMNS[group]}, arrival_ns, number"
    )
    found = database.execute(sql, {"life": life, **values})
    return np.fromiter((number for (number,) in found), np.uint32)


def condition(wanted: str) -> tuple[str, dict[str, Any]]:
    """`tenant:NAME`, `reason:NAME`, `id:TEXT`, `is:live`, `is:preempted`, or text in any of them, as SQL and values."""
    if not wanted:
        return "1", {}
    key, colon, rest = wanted.partition(":")
    if colon and key == "tenant":
        return "tenant = :wanted", {"wanted": rest}
    if colon and key == "reason":
        return "reason = :wanted", {"wanted": rest}
    if colon and key == "id":
        return "instr(request_id, :wanted)", {"wanted": rest}
    if wanted == "is:live":
        return "end_ns IS NULL", {}
    if wanted == "is:preempted":
        return "preemptions > 0", {}
    text = "(instr(request_id, :wanted) OR instr(tenant, :wanted) OR instr(coalesce(reason, ''), :wanted))"
    return text, {"wanted": wanted}


def rows_of(
    database: sqlite3.Connection, life: int, opened_ns: int, group: str, first: int, numbers: Array
) -> list[dict[str, Any]]:
    """These requests' rows, the first of them being row `first`."""
    sql = (
        f"SELECT {_COLUMNS}, {_GROUP_COLUMNS[group]} FROM requests WHERE number = ? AND life IN "
        "(SELECT life FROM lives WHERE life <= ?) ORDER BY life DESC LIMIT 1"
    )
    return [
        _row(first + place, opened_ns, database.execute(sql, (int(number), life)).fetchone())._asdict()
        for place, number in enumerate(numbers)
    ]


def name_of_request(database: sqlite3.Connection, number: int) -> str:
    """The id its client knows it by; "" when its arrival is not recorded."""
    sql = "SELECT request_id FROM requests WHERE number = ? AND life IN (SELECT life FROM lives) ORDER BY life DESC"
    found = database.execute(f"{sql} LIMIT 1", (number,)).fetchone()
    return str(found[0]) if found else ""


def _row(row: int, opened_ns: int, found: tuple[Any, ...]) -> Row:
    number, request_id, tenant, priority, arrival_ns, end_ns, reason, group = found
    ended = None if end_ns is None else end_ns - opened_ns
    return Row(row, number, request_id, tenant, priority, arrival_ns - opened_ns, ended, reason, str(group))
