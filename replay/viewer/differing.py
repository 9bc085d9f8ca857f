"""Where two recordings' requests part: the first decision about each that the other side does not make of it.

What is decided counts, not when: refusals, admissions, preemptions (for whom, and how) and ends; deferrals are told as
often as somebody looks, and do not count. It must not know tiles.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

KINDS = ("RequestRejected", "RequestAdmitted", "RequestPreempted", "RequestFinished")
_DECISIONS = f"""
SELECT request, now_ns - :opened, step, kind, reason, other_request FROM decisions
WHERE life = :life AND kind IN {KINDS} ORDER BY request, sequence, at
"""


class Decision(NamedTuple):
    """at_ns: since the opening; words: what counts, with the other side's numbers replaced by ours"""

    at_ns: int
    step: int
    words: str


class Difference(NamedTuple):
    """left, right: the first two that differ; None where that side decides nothing more"""

    request: int
    left: Decision | None
    right: Decision | None


def differences(
    left: Iterable[tuple[int, list[Decision]]], right: Mapping[int, list[Decision]]
) -> Iterator[Difference]:
    """Of each request that is decided on on the left; `right` under the left one's numbers."""
    for request, ours in left:
        theirs = right.get(request, [])
        for one, other in zip_longest(ours, theirs):
            if one is None or other is None or one.words != other.words:
                yield Difference(request, one, other)
                break


def decisions(
    database: sqlite3.Connection, life: int, opened_ns: int, names: Mapping[int, str]
) -> Iterator[tuple[int, list[Decision]]]:
    """(request, its decisions in order); `names`: number → what the request is called on both sides."""
    rows = database.execute(_DECISIONS, {"life": life, "opened": opened_ns})
    for request, group in groupby(rows, key=lambda row: int(row[0])):
        yield request, [Decision(row[1], row[2], _words(row, names)) for row in group]


def _words(row: Any, names: Mapping[int, str]) -> str:
    _, _, _, kind, reason, other = row
    whom = f" for {names.get(other, f'request {other}')}" if kind == "RequestPreempted" and other >= 0 else ""
    done = {"RequestRejected": "refused", "RequestAdmitted": "admitted", "RequestPreempted": "preempted"}
    return f"{done.get(kind, 'ended')}{whom}{f': {reason}' if reason else ''}"
