"""What the timeline draws: tiles of slices and of counters, marks, and arrows from victims to beneficiaries."""

import json
from typing import Any

from replay.viewer.columns import STRIPS
from replay.viewer.framing import framed
from replay.viewer.parameters import MAX_ROWS, Parameters, Range
from replay.viewer.rows import GROUPS, rows_of
from replay.viewer.strips import strips
from replay.viewer.timeline import tile
from replay.viewer.viewed import LifeColumns, Viewed

MAX_MARKS = 5_000
MAX_ARROWS = 5_000
_MARKS = """
SELECT kind, now_ns - :opened AS now_ns, until_ns - :opened AS until_ns, step,
       CASE WHEN request < 0 THEN NULL ELSE request END AS request, detail
FROM marks WHERE life = :life AND now_ns <= :to AND coalesce(until_ns, 9e18) >= :from ORDER BY now_ns, id LIMIT :limit
"""
_ARROWS = """
SELECT now_ns - :opened AS now_ns, step, victim, beneficiary, reason, mode, chain, chain_length, tokens_lost,
       blocks_freed
FROM preemptions WHERE life = :life AND now_ns BETWEEN :from AND :to {among} ORDER BY sequence, at LIMIT :limit
"""


_ENDED_BY = """
SELECT detail_json FROM decisions WHERE life = :life AND kind = 'ThrashingEnded'
    AND sequence IN (SELECT sequence FROM steps WHERE life = :life AND planned_ns = :until) LIMIT 1
"""  # it is told in the pass that plans a step


def timeline(viewed: Viewed, asked: Parameters) -> bytes:
    """Binary: see `framing.py` and `timeline.py`."""
    life = asked.integer("life", 1)
    group = asked.one_of("group", "none", *GROUPS)
    first, count = asked.pair("rows", (0, 256), MAX_ROWS)
    with viewed.columns(life) as columns:
        seen = asked.range(whole(columns))
        alive = times_of(columns, seen) if asked.integer("alive", 0, 0, 1) else None
        places = viewed.order(life, group, asked.text("filter"), alive)
        shown = places[first : first + count]
        header, arrays = tile(columns.slices, seen, viewed.requests.of("number")[shown])
        rows = rows_of(viewed.requests, columns.opened_ns, group, first, shown)
        of_rows = {"rows": rows, "first": first, "num_rows": len(places)}
        return framed({**of_rows, **header, "generation": viewed.generation}, arrays)


def counters(viewed: Viewed, asked: Parameters) -> bytes:
    """Binary: see `strips.py`."""
    with viewed.columns(asked.integer("life", 1)) as columns:
        seen = asked.range(whole(columns))
        header, arrays = strips(columns.steps, seen, asked.names("names", STRIPS))
        header |= {"from": header.pop("begin"), "to": header.pop("end"), "generation": viewed.generation}
        return framed(header, arrays)


def marks(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """`ended_by`: with what figures thrashing was found to be over; None of others, and while it lasts."""
    found = _within(viewed, asked, _MARKS, MAX_MARKS)
    life = asked.integer("life", 1)
    opened_ns = viewed.opened_ns(life)
    with viewed.database() as database:
        for mark in found:
            mark["ended_by"] = None
            if mark["kind"] == "thrashing" and mark["until_ns"] is not None:
                values = {"life": life, "until": mark["until_ns"] + opened_ns}
                row = database.execute(_ENDED_BY, values).fetchone()
                mark["ended_by"] = json.loads(row[0]) if row else None
    return {"marks": found[:MAX_MARKS], "is_cut": len(found) > MAX_MARKS}


def arrows(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    requests = asked.numbers("requests", 1_000)
    listed = ",".join(map(str, requests))
    among = f"AND (victim IN ({listed}) OR beneficiary IN ({listed}))" if requests else ""  # numbers only
    found = _within(viewed, asked, _ARROWS.format(among=among), MAX_ARROWS)
    return {"arrows": found[:MAX_ARROWS], "is_cut": len(found) > MAX_ARROWS}


def whole(columns: LifeColumns) -> dict[str, tuple[float, float]]:
    """Axis → all there is of the life."""
    steps = columns.steps.steps
    last_step = float(steps[-1]) + 1 if len(steps) else 1.0
    return {"time": (0.0, columns.last_ns or 1.0), "step": (float(steps[0]) if len(steps) else 0.0, last_step)}


def times_of(columns: LifeColumns, seen: Range) -> tuple[float, float]:
    """The range in nanoseconds."""
    if seen.axis == "time":
        return seen.begin, seen.end
    planned, steps = columns.steps.planned_ns, columns.steps.steps
    if not len(steps):
        return 0.0, 0.0
    first, last = (min(int(steps.searchsorted(step)), len(steps) - 1) for step in (seen.begin, seen.end))
    return float(planned[first]), max(float(planned[last]), float(columns.steps.completed_ns[last]))


def _within(viewed: Viewed, asked: Parameters, sql: str, limit: int) -> list[dict[str, Any]]:
    life = asked.integer("life", 1)
    with viewed.columns(life) as columns:
        opened_ns = columns.opened_ns
        begin, end = times_of(columns, asked.range(whole(columns)))
    is_all = asked.text("from") == asked.text("to") == ""
    values = {
        "life": life,
        "opened": opened_ns,
        "from": -(2**62) if is_all else begin + opened_ns,
        "to": 2**62 if is_all else end + opened_ns,
        "limit": limit + 1,
    }
    with viewed.database() as database:
        return [dict(row) for row in database.execute(sql, values)]
