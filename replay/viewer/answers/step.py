"""One step: what was planned and why, who waits for what, what became of blocks, and where its time went.

What happened since the plan before led to this one and is told with it: arrivals, results, and every decision in order.
"""

import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from engine.core.decisions import StepPlanned, TokensEmitted
from engine.core.vocabulary import Entry
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
_KINDS = """
SELECT request, kind FROM slices WHERE life = :life AND request IN ({numbers}) AND from_step <= :step
    AND to_step >= :step AND kind IN ('prefill', 'decode') ORDER BY from_ns
"""
_TIMES = ("planned_ns", "completed_ns")


class StepPlace(NamedTuple):
    """
    row              of the index's table `steps`
    first_sequence   behind the entry that planned the step before
    last_sequence    of the entry with its result; of its plan where that is not known
    """

    life: int
    opened_ns: int
    row: dict[str, Any]
    first_sequence: int
    last_sequence: int

    @property
    def number(self) -> int:
        return int(self.row["step"])


def step(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """Raises BadQuestion where no such step was planned, or it is not indexed yet.

    waiting, running   None where the core's state is not known there; `state_reason` says why
    """
    life, number = asked.integer("life", 1), asked.integer("step")
    opened_ns = viewed.opened_ns(life)
    _, recorded = run_of(viewed, life)
    with viewed.database() as database:
        place = place_of(database, life, opened_ns, number)
        entries = list(
            takewhile(lambda entry: entry.sequence <= place.last_sequence, recorded.entries(place.first_sequence))
        )
        at_step, state_reason = viewed.at_step(life, number, of_state)
        told = told_of(database, place, entries, at_step, {})
    return {**told, "state_reason": state_reason, "command": command(viewed, place)}


def place_of(database: sqlite3.Connection, life: int, opened_ns: int, number: int) -> StepPlace:
    """Raises BadQuestion."""
    row = _row(database, life, number)
    before = "SELECT coalesce(max(sequence), -1) FROM steps WHERE life = ? AND step < ?"
    first_sequence = database.execute(before, (life, number)).fetchone()[0] + 1
    last_sequence = row["sequence"] if row["completed_sequence"] is None else row["completed_sequence"]
    return StepPlace(life, opened_ns, row, first_sequence, last_sequence)


def told_of(
    database: sqlite3.Connection,
    place: StepPlace,
    entries: Sequence[Entry],
    at_step: dict[str, Any] | None,
    names: dict[int, str],
) -> dict[str, Any]:
    """
    entries   from the place's first to its last
    at_step   what `of_state` makes of the state behind its plan
    names     of requests, kept from one step to the next
    """
    life, opened_ns, row = place.life, place.opened_ns, place.row
    plan = _plan(entries, place.number)
    return {
        "step": row | {name: row[name] - opened_ns for name in _TIMES if row[name] is not None},
        "rows": list(_rows(database, life, plan, names)),
        **(at_step or {"waiting": None, "running": None}),
        "blocks": _blocks(database.execute(_BLOCKS, (life, place.number))),
        "events": list(_events(entries, opened_ns, row)),
        "decisions": list(_decisions(entries, opened_ns, row)),
        "neighbours": dict(database.execute(_NEIGHBOURS, {"life": life, "step": place.number}).fetchone()),
    }


def command(viewed: Viewed, place: StepPlace) -> str:
    return f"reprise show {shlex.quote(str(viewed.shown_path))} --transcript --around {place.row['sequence']}"


def of_state(state: State) -> dict[str, Any]:
    return {"waiting": list(_waiting(state)), "running": list(_running(state))}


def _row(database: sqlite3.Connection, life: int, number: int) -> dict[str, Any]:
    found = database.execute("SELECT * FROM steps WHERE life = ? AND step = ?", (life, number)).fetchone()
    if found is None:
        raise BadQuestion(f"step {number} is not in life {life}, or its index is still being built", "step", 404)
    return dict(found)


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


def _rows(
    database: sqlite3.Connection, life: int, plan: StepPlanned, names: dict[int, str]
) -> Iterator[dict[str, Any]]:
    new_blocks: dict[int, list[int]] = {}
    for request, block in plan.new_blocks:
        new_blocks.setdefault(request, []).append(block)
    numbers = ",".join(str(int(request)) for request, _start, _count in plan.rows)
    found = database.execute(_KINDS.format(numbers=numbers), {"life": life, "step": plan.step})
    kinds = dict(found)
    for request, start, count in plan.rows:
        if request not in names:
            names[request] = name_of_request(database, request)
        yield {
            "request": request,
            "request_id": names[request],
            "start": start,
            "count": count,
            "kind": kinds.get(request),
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
