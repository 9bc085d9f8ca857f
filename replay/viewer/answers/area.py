"""A selection in figures: requests and slices within a range, and the steps that began in it.

Quantiles are by nearest rank, as `reprise show` has them, of the requests that lived in the range.
"""

import sqlite3
from typing import Any

import numpy as np

from replay.figures import quantiles
from replay.viewer.answers.views import times_of, whole
from replay.viewer.columns import KINDS, SliceColumns, StepColumns
from replay.viewer.framing import Array
from replay.viewer.parameters import MAX_ROWS, Parameters, Range
from replay.viewer.rows import GROUPS
from replay.viewer.timeline import slices_of
from replay.viewer.viewed import Viewed

_REQUESTS = "SELECT number, ttft_ms, e2e_ms, itl_p50_ms, itl_max_ms FROM requests WHERE life <= ?"


def area(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """`rows` limits requests and slices to some rows of the timeline, by group and filter; steps are everybody's."""
    life, group = asked.integer("life", 1), asked.one_of("group", "none", *GROUPS)
    with viewed.columns(life) as columns:
        seen = asked.range(whole(columns))
        begin_ns, end_ns = times_of(columns, seen)
        numbers = viewed.order(life, group, asked.text("filter"), (begin_ns, end_ns))
        if asked.text("rows"):
            first, count = asked.pair("rows", (0, MAX_ROWS), 2**31)
            rows = viewed.order(life, group, asked.text("filter"), None)[first : first + count]
            numbers = numbers[np.isin(numbers, rows)]
        of_steps = _of_steps(columns.steps, seen)
        by_kind, tokens = _of_slices(columns.slices, numbers, seen)
        absolute = (begin_ns + columns.opened_ns, end_ns + columns.opened_ns)
    with viewed.database() as database:
        of_requests = _of_requests(database, life, absolute, set(numbers.tolist()))
    return {"requests": len(numbers), **of_requests, "tokens": tokens, **of_steps, "by_kind": by_kind}


def _of_steps(columns: StepColumns, seen: Range) -> dict[str, Any]:
    starts = columns.steps if seen.axis == "step" else columns.planned_ns
    first, last = np.searchsorted(starts, [seen.begin, seen.end])
    num = int(last - first)

    def mean(name: str) -> float | None:
        values = columns.strip(name)[first:last]
        return float(np.nanmean(values, dtype=np.float64)) if num and not np.isnan(values).all() else None

    return {
        "steps": num,
        "first_step": int(columns.steps[first]) if num else None,
        "last_step": int(columns.steps[last - 1]) if num else None,
        "mean_running": mean("running"),
        "mean_waiting": mean("waiting"),
        "mean_step_ms": mean("step_ms"),
        "mean_budget_used": mean("budget_used"),
        "mean_decode_rows": mean("decode_rows"),
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


def _of_requests(
    database: sqlite3.Connection, life: int, absolute: tuple[float, float], numbers: set[int]
) -> dict[str, Any]:
    chosen = [row for row in database.execute(_REQUESTS, (life,)) if row[0] in numbers]
    found = database.execute(
        "SELECT victim FROM preemptions WHERE life = ? AND now_ns BETWEEN ? AND ?", (life, *absolute)
    )

    def ranks(column: str) -> dict[str, float] | None:
        return quantiles([None if row[column] is None else round(row[column] * 1e6) for row in chosen])

    return {
        "preemptions": sum(victim in numbers for (victim,) in found),
        "ttft_ms": ranks("ttft_ms"),
        "itl_p50_ms": ranks("itl_p50_ms"),
        "itl_max_ms": ranks("itl_max_ms"),
        "e2e_ms": ranks("e2e_ms"),
    }
