"""Which requests are rows of the timeline, and in which order: by group, in each by arrival.

The order depends on life, group and filter alone, so that it stands still while the view moves.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from replay.viewer.framing import Array
from replay.viewer.requests import RequestColumns

GROUPS = ("none", "tenant", "state", "priority")
LIVES = "live"


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


def in_order(
    requests: RequestColumns,
    life: int,
    opened_ns: int,
    group: str,
    wanted: str,
    alive: tuple[float, float] | None = None,
) -> Array:
    """Places of the requests in the order of their rows.

    wanted   as `having` reads it
    alive    only those that live then (absolute nanoseconds)
    Of a life before, those that the engine of this one took over are among them.
    """
    lives, ends, arrivals = requests.of("life"), requests.of("end_ns"), requests.of("arrival_ns")
    chosen = (lives == life) | ((lives < life) & ~(ends <= opened_ns))
    if alive is not None:
        chosen &= (arrivals <= alive[1]) & ~(ends < alive[0])
    if wanted:
        chosen &= having(requests, wanted)
    places = np.flatnonzero(chosen)
    keys = [requests.of("number")[places], arrivals[places]]
    if group != "none":
        keys.append(_ranks(requests, group)[places])
    return places[np.lexsort(keys)]


def having(requests: RequestColumns, wanted: str) -> Array:
    """`tenant:NAME`, `reason:NAME`, `id:TEXT`, `is:live`, `is:preempted`, or text in any of these: where it is so."""
    if wanted == "is:live":
        return np.isnan(requests.of("end_ns"))
    if wanted == "is:preempted":
        return requests.of("preemptions") > 0
    key, colon, rest = wanted.partition(":")
    if colon and key == "id":
        return _among(requests, requests.ids.having(rest))
    if colon and key in ("tenant", "reason"):
        return _coded(requests, key, lambda text: text == rest)
    found = _among(requests, requests.ids.having(wanted))
    return (
        found
        | _coded(requests, "tenant", lambda text: wanted in text)
        | _coded(requests, "reason", lambda text: wanted in text)
    )


def rows_of(requests: RequestColumns, opened_ns: int, group: str, first: int, places: Array) -> list[dict[str, Any]]:
    """These requests' rows, the first of them being row `first`."""
    return [_row(requests, opened_ns, group, first + at, int(place))._asdict() for at, place in enumerate(places)]


def _row(requests: RequestColumns, opened_ns: int, group: str, row: int, place: int) -> Row:
    def of(name: str) -> Any:
        return requests.of(name)[place]

    tenant, reason = requests.tenants.texts[of("tenant")], requests.reasons.texts[of("reason")] or None
    ended = None if np.isnan(of("end_ns")) else int(of("end_ns")) - opened_ns
    groups = {"none": "", "tenant": tenant, "state": reason or LIVES, "priority": str(of("priority"))}
    about = (int(of("number")), requests.ids[place], tenant, int(of("priority")), int(of("arrival_ns")) - opened_ns)
    return Row(row, *about, ended, reason, groups[group])


def _ranks(requests: RequestColumns, group: str) -> Array:
    """Of each request its group's place among the groups."""
    if group == "priority":
        return requests.of("priority")
    codes = requests.tenants if group == "tenant" else requests.reasons
    texts = [text or LIVES for text in codes.texts] if group == "state" else codes.texts
    ranks = np.empty(max(1, len(texts)), np.int64)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return ranks[requests.of("tenant" if group == "tenant" else "reason")]


def _among(requests: RequestColumns, places: Array) -> Array:
    found = np.zeros(len(requests), bool)
    found[places] = True
    return found


def _coded(requests: RequestColumns, name: str, holds: Callable[[str], bool]) -> Array:
    codes = requests.tenants if name == "tenant" else requests.reasons
    return np.isin(requests.of(name), [code for code, text in enumerate(codes.texts) if holds(text)])


def name_of_request(database: sqlite3.Connection, number: int) -> str:
    """The id its client knows it by; "" when its arrival is not recorded."""
    sql = "SELECT request_id FROM requests WHERE number = ? AND life IN (SELECT life FROM lives) ORDER BY life DESC"
    found = database.execute(f"{sql} LIMIT 1", (number,)).fetchone()
    return str(found[0]) if found else ""
