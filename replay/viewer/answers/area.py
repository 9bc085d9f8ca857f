"""A selection in figures: requests and slices within a range, and the steps that began in it.

Quantiles are by nearest rank, as `reprise show` has them, of the requests that lived in the range.
"""

import sqlite3
from typing import Any

import numpy as np

from replay.viewer.answers.views import times_of, whole
from replay.viewer.columns import KINDS, SliceColumns, StepColumns
from replay.viewer.framing import Array
from replay.viewer.parameters import MAX_ROWS, Parameters, Range
from replay.viewer.requests import FIGURES
from replay.viewer.rows import GROUPS
from replay.viewer.timeline import slices_of
from replay.viewer.viewed import Viewed

_MEANS = ("running", "waiting", "step_ms", "budget_used", "decode_rows")


def area(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """`rows` limits requests and slices to some rows of the timeline, by group and filter; steps are everybody's."""
    life, group, wanted = asked.integer("life", 1), asked.one_of("group", "none", *GROUPS), asked.text("filter")
    with viewed.columns(life) as columns:
        seen = asked.range(whole(columns))
        alive = times_of(columns, seen)
        places = viewed.order(life, group, wanted, alive)
        is_part = bool(wanted or asked.text("rows"))
        if asked.text("rows"):
            first, count = asked.pair("rows", (0, MAX_ROWS), 2**31)
            rows = viewed.order(life, group, wanted, None)[first : first + count]
            places = rows[np.isin(rows, places)]
        numbers = viewed.requests.of("number")[places]
        of_requests = {f"{name}": _ranks(viewed.requests.of(name)[places]) for name in FIGURES}
        of_steps = _of_steps(columns.steps, seen)
        by_kind, tokens = (
            _of_slices(columns.slices, numbers, seen) if is_part else columns.slices.sums.over(seen.axis, *seen[1:3])
        )
        absolute = (alive[0] + columns.opened_ns, alive[1] + columns.opened_ns)
    with viewed.database() as database:
        num_preemptions = _preemptions(database, life, absolute, set(numbers.tolist()) if is_part else None)
    values = {"requests": len(numbers), "preemptions": num_preemptions, **of_requests}
    return {**values, "tokens": tokens, **of_steps, "by_kind": by_kind}


def _of_steps(columns: StepColumns, seen: Range) -> dict[str, Any]:
    starts = columns.steps if seen.axis == "step" else columns.planned_ns
    first, last = np.searchsorted(starts, [seen.begin, seen.end])
    num = int(last - first)

    means: dict[str, float | None] = {
        f"mean_{name}": float(found.total[0] / found.num_known[0]) if found.num_known[0] else None
        for name, found in columns.figures(_MEANS, np.array([first]), np.array([last]))
    }
    return {
        "steps": num,
        "first_step": int(columns.steps[first]) if num else None,
        "last_step": int(columns.steps[last - 1]) if num else None,
        **means,
    }


def _of_slices(
    columns: SliceColumns, numbers: Array, seen: Range
) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Kind → how many reach into the range, and how much of it they take; tokens of those that end in it."""
    found = slices_of(columns, numbers, seen)
    inside = np.minimum(found.end, seen.end) - np.maximum(found.begin, seen.begin)
    by_kind, tokens = {}, {}
    for number, name in enumerate(KINDS):
        chosen = found.kind == number
        by_kind[name] = {"count": int(chosen.sum()), "busy": float(inside[chosen].sum())}
        tokens[name] = int(found.tokens[chosen & (found.end <= seen.end)].sum())
    return by_kind, {name: tokens[name] for name in ("prefill", "decode")}


def _preemptions(
    database: sqlite3.Connection, life: int, absolute: tuple[float, float], numbers: set[int] | None
) -> int:
    """Of these requests, or of all."""
    where = "FROM preemptions WHERE life = ? AND now_ns BETWEEN ? AND ?"
    if numbers is None:
        return int(database.execute(f"SELECT count(*) {where}", (life, *absolute)).fetchone()[0])
    return sum(victim in numbers for (victim,) in database.execute(f"SELECT victim {where}", (life, *absolute)))


def _ranks(milliseconds: Array) -> dict[str, float] | None:
    """As `quantiles` has them, to the same digit, without sorting all."""
    known = milliseconds[~np.isnan(milliseconds)]
    if not len(known):
        return None
    places = {f"p{rank}": max(0, -(-len(known) * rank // 100) - 1) for rank in (50, 99)}
    ordered = np.partition(known, sorted(set(places.values())))
    return {name: float(ordered[place]) for name, place in places.items()}
