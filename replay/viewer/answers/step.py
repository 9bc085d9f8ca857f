"""One step: what was planned and why, who waits for what, what became of blocks, and where its time went.

What happened since the plan before led to this one and is told with it: arrivals, results, and every decision in order.
"""

import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from engine.core.decisions import StepPlanned, TokensEmitted
from engine.core.vocabulary import Entry
from replay.lives import Life
from replay.rendering import record_as_values
from replay.time_machine.state import State
from replay.transcript import describe, name_of
from replay.viewer.answers.request import run_of
from replay.viewer.errors import BadQuestion
from replay.viewer.parameters import Parameters
from replay.viewer.rows import name_of_request
from replay.viewer.viewed import Viewed

_NEIGHBOURS = """
SELECT (SELECT max(step) FROM steps WHERE life = :life AND step < :step) AS previous,
       (SELECT min(step) FROM steps WHERE life = :life AND step > :step) AS next
"""
_BLOCKS = """
SELECT kind, block, request FROM block_events
WHERE life = ? AND step = ? AND kind IN ('allocated', 'hit', 'evicted', 'freed', 'released') ORDER BY sequence, id
"""
_TIMES = ("planned_ns", "completed_ns")


def step(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """Raises BadQuestion where no such step was planned, or it is not indexed yet.

    waiting, running   None where the core's state is not known there; `state_reason` says why
    """
    life, number = asked.integer("life", 1), asked.integer("step")
    opened_ns = viewed.opened_ns(life)
    _, recorded = run_of(viewed, life)
    with viewed.database() as database:
        row = _row(database, life, number)
        before = "SELECT coalesce(max(sequence), -1) FROM steps WHERE life = ? AND step < ?"
        first_sequence = database.execute(before, (life, number)).fetchone()[0] + 1
        neighbours = dict(database.execute(_NEIGHBOURS, {"life": life, "step": number}).fetchone())
        blocks = _blocks(database.execute(_BLOCKS, (life, number)))
        told = _Told(database, life)
        entries = list(_entries(recorded, first_sequence, row))
        plan = _plan(entries, number)
        at_step, state_reason = viewed.at_step(life, number, _of_state)
        return {
            "step": row | {name: row[name] - opened_ns for name in _TIMES if row[name] is not None},
            "rows": list(told.rows(plan)),
            **(at_step or {"waiting": None, "running": None}),
            "state_reason": state_reason,
            "blocks": blocks,
            "events": list(_events(entries, opened_ns, row)),
            "decisions": list(_decisions(entries, opened_ns, row)),
            "neighbours": neighbours,
            "command": f"reprise show {shlex.quote(str(viewed.shown_path))} --transcript --around {row['sequence']}",
        }


def _of_state(state: State) -> dict[str, Any]:
    return {"waiting": list(_waiting(state)), "running": list(_running(state))}


def _row(database: sqlite3.Connection, life: int, number: int) -> dict[str, Any]:
    found = database.execute("SELECT * FROM steps WHERE life = ? AND step = ?", (life, number)).fetchone()
    if found is None:
        raise BadQuestion(f"step {number} is not in life {life}, or its index is still being built", "step", 404)
    return dict(found)


def _entries(life: Life, first_sequence: int, row: dict[str, Any]) -> Iterator[Entry]:
    """From behind the plan before to the step's result."""
    last = row["sequence"] if row["completed_sequence"] is None else row["completed_sequence"]
    return takewhile(lambda entry: entry.sequence <= last, life.entries(first_sequence))


def _plan(entries: Iterable[Entry], number: int) -> StepPlanned:
    plans = [decision for entry in entries for decision in entry.decisions if isinstance(decision, StepPlanned)]
    return next(plan for plan in plans if plan.step == number)


def _events(entries: Iterable[Entry], opened_ns: int, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What led to the plan, then what came while it was carried out; the last of them is its result."""
    for entry in entries:
        yield {
            "sequence": entry.sequence,
            "time_ns": entry.now_ns - opened_ns,
            "record": name_of(entry.event),
            "text": describe(entry.event),
            "before_plan": entry.sequence <= row["sequence"],
        }


def _decisions(entries: Iterable[Entry], opened_ns: int, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of this planning and since the one before; what its result led to belongs to the next step."""
    for entry in entries:
        if entry.sequence > row["sequence"]:
            return
        for at, decision in enumerate(entry.decisions):
            yield {
                "sequence": entry.sequence,
                "at": at,
                "time_ns": entry.now_ns - opened_ns,
                "record": name_of(decision),
                "request": getattr(decision, "request", None),
                "text": describe(decision),
                "fields": None if isinstance(decision, StepPlanned | TokensEmitted) else record_as_values(decision),
            }


def _blocks(found: Iterable[Any]) -> dict[str, list[Any]]:
    """[block, request] pairs; evictions of a plan do not say for whom each was."""
    blocks: dict[str, list[Any]] = {kind: [] for kind in ("allocated", "hit", "evicted", "freed", "released")}
    for kind, block, request in found:
        blocks[kind].append([block, request if request >= 0 else None])
    return blocks


class _Told:
    """Requests as the index has them."""

    def __init__(self, database: sqlite3.Connection, life: int) -> None:
        self._database, self._life = database, life

    def rows(self, plan: StepPlanned) -> Iterator[dict[str, Any]]:
        new_blocks: dict[int, list[int]] = {}
        for request, block in plan.new_blocks:
            new_blocks.setdefault(request, []).append(block)
        sql = (
            "SELECT kind FROM slices WHERE life = ? AND request = ? AND from_step <= ? AND to_step >= ? "
            "AND kind IN ('prefill', 'decode') ORDER BY from_ns DESC LIMIT 1"
        )
        for request, start, count in plan.rows:
            kind = self._database.execute(sql, (self._life, request, plan.step, plan.step)).fetchone()
            yield {
                "request": request,
                "request_id": name_of_request(self._database, request),
                "start": start,
                "count": count,
                "kind": kind[0] if kind else None,
                "new_blocks": new_blocks.get(request, []),
            }


def _running(state: State) -> Iterator[dict[str, Any]]:
    """In order of admission."""
    for request in state.running:
        yield {
            "request": request.number,
            "request_id": request.request_id,
            "tenant": request.tenant,
            "num_computed_tokens": request.num_computed_tokens,
            "num_tokens": request.num_tokens,
            "num_blocks": len(request.block_table),
            "num_preemptions": request.num_preemptions,
        }


def _waiting(state: State) -> Iterator[dict[str, Any]]:
    """In the order in which they would be admitted, each with the reason it was told last."""
    for waits in state.waiting():
        is_told = waits.since_sequence >= 0
        yield {
            "request": waits.request,
            "request_id": waits.request_id,
            "tenant": waits.tenant,
            "state": waits.status,
            "reason": waits.reason or None,
            "needed": waits.num_blocks_needed if is_told else None,
            "free": waits.num_blocks_free if is_told else None,
            "kept": waits.num_blocks_kept if is_told else None,
            "behind": waits.behind if waits.behind >= 0 else None,
            "since_ns": waits.since_ns - state.opened_ns if is_told else None,
            "since_step": waits.since_step if is_told else None,
            "passes": waits.num_passes,
            "num_passes_over": waits.num_passes_over,
            "is_protected": waits.is_protected,
        }
