"""The block map: the KV pool as a step found it, and one block's history of holders and writers."""

import sqlite3
from collections.abc import Iterable
from typing import Any

import numpy as np

from replay.time_machine.state import State
from replay.viewer.errors import BadQuestion
from replay.viewer.framing import Array, framed
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed

STATES = ("free", "cached", "owned", "shared", "mismatch")
NO_OWNER = -1
NEVER = 2**32 - 1
MAX_EVENTS = 10_000
_WRITTEN = """
SELECT min(coalesce(to_step, step), :step) FROM block_events
WHERE life = :life AND block = :block AND kind = 'written'
    AND sequence <= (SELECT coalesce(completed_sequence, sequence) FROM steps WHERE life = :life AND step = :step)
ORDER BY sequence DESC, id DESC LIMIT 1
"""
_MISMATCHED = """
SELECT DISTINCT json_extract(detail_json, '$.block') FROM decisions
WHERE life = ? AND kind = 'PrefixIndexDropped' AND step <= ?
"""  # the core's answer to a block that did not hold what was written to it
_HISTORY = """
SELECT b.sequence, b.step, b.to_step, b.kind, CASE WHEN b.request >= 0 THEN b.request END AS request, r.request_id,
       b.is_open
FROM block_events b LEFT JOIN requests r ON r.life = b.life AND r.number = b.request
WHERE b.life = :life AND b.block = :block ORDER BY b.sequence, b.id LIMIT :limit
"""


def blocks(viewed: Viewed, asked: Parameters) -> bytes:
    """Binary: owner i32, refs u16, age_steps u32, state u8, each as long as the pool.

    owner       who took it first of those that hold it; -1 where nobody does
    age_steps   since the step that wrote into it last, this one included; 2³²−1 where none did
    """
    life, step = asked.integer("life", 1), asked.integer("step")
    viewed.opened_ns(life)
    arrays, reason = viewed.at_step(life, step, of_state)
    if arrays is None:
        raise BadQuestion(f"the pool at step {step} is not known: {reason}", "step", 404)
    with viewed.database() as database:
        ages = ages_of(database, life, step, len(arrays["owner"]))
        return told_of(life, step, arrays, ages, mismatches(database, life, step))


def told_of(life: int, step: int, arrays: dict[str, Array], ages: Array, mismatched: Iterable[int]) -> bytes:
    """arrays: as `of_state` made them."""
    for number in mismatched:
        if number < len(arrays["state"]):
            arrays["state"][number] = STATES.index("mismatch")
    header = {"life": life, "step": step, "num_blocks": len(arrays["owner"]), "states": STATES}
    return framed(header, {**arrays, "age_steps": ages})


def mismatches(database: sqlite3.Connection, life: int, step: int) -> list[int]:
    """Blocks that were found until then not to hold what was written to them."""
    return [number for (number,) in database.execute(_MISMATCHED, (life, step)) if number is not None]


def of_state(state: State) -> dict[str, Array]:
    found = state.pool()
    owner = np.full(found.num_blocks, NO_OWNER, np.int32)
    refs = np.zeros(found.num_blocks, np.uint16)
    for request in state.requests.values():
        table = np.array(request.block_table, np.int64)
        owner[table[owner[table] == NO_OWNER]] = request.number
        np.add.at(refs, table, 1)
    cached = np.zeros(found.num_blocks, bool)
    cached[list(found.evictable)] = True
    kinds = np.where(refs > 1, 3, np.where(refs == 1, 2, cached)).astype(np.uint8)
    return {"owner": owner, "refs": refs, "age_steps": np.empty(0, np.uint32), "state": kinds}


def ages_of(database: sqlite3.Connection, life: int, step: int, num_blocks: int) -> Array:
    age = np.full(num_blocks, NEVER, np.uint32)
    for number in range(num_blocks):
        found = database.execute(_WRITTEN, {"life": life, "step": step, "block": number}).fetchone()
        if found is not None:
            age[number] = step - found[0]
    return age


def block(viewed: Viewed, asked: Parameters) -> dict[str, Any]:
    """In order; `now` marks what the step lies in."""
    life, number = asked.integer("life", 1), asked.integer("block")
    step = asked.integer("step", -1, -1)
    viewed.opened_ns(life)
    if viewed.state.state == "building":
        raise BadQuestion("the index is still being built: ask again when it is ready", "block", 404)
    with viewed.database() as database:
        values = {"life": life, "block": number, "limit": MAX_EVENTS + 1}
        found = [dict(row) for row in database.execute(_HISTORY, values)]
    for event in found:
        last = event["step"] if event["to_step"] is None else event["to_step"]
        event["now"] = event["step"] <= step <= last
    return {"block": number, "events": found[:MAX_EVENTS], "is_cut": len(found) > MAX_EVENTS}
