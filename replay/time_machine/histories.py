"""What led there, from the index: who wrote a block and who read it, who gave way for whom, when a request changed.

What is told can be bounded: a debugger that stands at step 120 does not know what comes. Nothing is replayed here.
"""

import json
import sqlite3
from typing import Any, NamedTuple

EVER = 2**62


class BlockWrite(NamedTuple):
    """
    step        of the last write
    first_step  since which it was written in every step
    """

    request: int
    step: int
    first_step: int


class BlockHold(NamedTuple):
    """How a request came to have a block, and until when: the step in which it gave it up, None when it still has it.

    kind   allocated, or hit: found in the prefix cache
    """

    request: int
    kind: str
    from_step: int
    until_step: int | None


class BlockEvent(NamedTuple):
    """A row of `block_events`; to_step None where it is of one step."""

    sequence: int
    step: int
    to_step: int | None
    kind: str
    request: int


class Preemption(NamedTuple):
    """A row of `preemptions`."""

    sequence: int
    now_ns: int
    step: int
    victim: int
    beneficiary: int
    reason: str
    mode: str
    tokens_lost: int
    blocks_freed: int
    chain: int
    chain_length: int


class Change(NamedTuple):
    """When a request's status changed, and by which decision; "RequestArrived" for its arrival."""

    sequence: int
    now_ns: int
    step: int
    status: str
    by: str
    reason: str


class Decided(NamedTuple):
    """A row of `decisions`, `detail` by the names of its fields."""

    sequence: int
    at: int
    now_ns: int
    step: int
    kind: str
    request: int
    other_request: int
    reason: str
    detail: dict[str, Any]


class Histories:
    """Of one life. `before_step` S knows the steps below S; `until` an entry knows all up to it, that one included."""

    def __init__(self, database: sqlite3.Connection, life: int) -> None:
        self._database = database
        self._life = life

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def last_writer(self, block: int, before_step: int = EVER) -> BlockWrite | None:
        """Who wrote into the block last, in a step before that one."""
        row = self._last_write(block, before_step)
        if row is None:
            return None
        return BlockWrite(row["request"], min(row["to_step"], before_step - 1), row["step"])

    def readers(self, block: int, before_step: int = EVER, until: int = EVER) -> list[BlockHold]:
        """Who has had what was written there last before that step, its writer included; as of that entry, in order."""
        written = self._last_write(block, before_step)
        if written is None:
            return []
        since = self._one(
            "SELECT sequence FROM block_events WHERE life = ? AND block = ? AND sequence < ? AND request = ? "
            "AND kind IN ('allocated', 'hit') ORDER BY sequence DESC LIMIT 1",
            (block, written["sequence"], written["request"]),
        )
        return self._holds(block, 0 if since is None else since[0], until)

    def block_events(self, block: int, until: int = EVER, last: int = 100) -> list[BlockEvent]:
        """What happened to it until that entry, the last so many; a run of writes is told to its own end."""
        rows = self._all(
            "SELECT sequence, step, to_step, kind, request FROM block_events WHERE life = ? AND block = ? "
            "AND sequence <= ? ORDER BY sequence DESC, id DESC LIMIT ?",
            (block, until, last),
        )
        return [BlockEvent(*row) for row in reversed(rows)]

    def _last_write(self, block: int, before_step: int) -> Any:
        """The bound in sequences is only there so that what comes after it is not looked through."""
        plan = self._one(
            "SELECT sequence FROM steps WHERE life = ? AND step >= ? ORDER BY step LIMIT 1", (before_step,)
        )
        return self._one(
            "SELECT request, sequence, step, to_step FROM block_events WHERE life = ? AND block = ? "
            "AND sequence <= ? AND kind = 'written' AND step < ? ORDER BY sequence DESC, id DESC LIMIT 1",
            (block, EVER if plan is None else plan[0], before_step),
        )

    def _holds(self, block: int, since: int, until: int) -> list[BlockHold]:
        rows = self._all(
            "SELECT step, kind, request FROM block_events WHERE life = ? AND block = ? AND sequence >= ? "
            "AND sequence <= ? AND kind != 'written' ORDER BY sequence, id",
            (block, since, until),
        )
        holds: list[BlockHold] = []
        for step, kind, request in rows:
            if kind in ("allocated", "hit"):
                holds.append(BlockHold(request, kind, step, None))
            elif kind in ("released", "freed"):
                holds = [
                    hold._replace(until_step=step) if hold.request == request and hold.until_step is None else hold
                    for hold in holds
                ]
        return holds

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def preemptions(self, request: int, until: int = EVER) -> list[Preemption]:
        """Those of which it was the victim."""
        return self._preemptions("victim = ? AND sequence <= ?", (request, until))

    def chain(self, chain: int, until: int = EVER) -> list[Preemption]:
        """The cascade, in order: each is the next one's cause. Nothing for -1, which stands for none."""
        return [] if chain < 0 else self._preemptions("chain = ? AND sequence <= ?", (chain, until))

    def changes(self, request: int, until: int = EVER) -> list[Change]:
        """Its arrival here, and each change of its status."""
        marks = ", ".join(f"'{kind}'" for kind in _STATUS_AFTER)
        rows = self._all(
            f"SELECT sequence, now_ns, step, kind, reason FROM decisions WHERE life = ? AND request = ? "
            f"AND sequence <= ? AND kind IN ({marks}) ORDER BY sequence, at",
            (request, until),
        )
        changes = [Change(row[0], row[1], row[2], _STATUS_AFTER[row[3]], row[3], row[4]) for row in rows]
        arrived = self._one(
            "SELECT sequence, arrival_ns FROM requests WHERE life = ? AND number = ? AND sequence <= ?",
            (request, until),
        )
        if arrived is None:
            return changes
        return [Change(arrived[0], arrived[1], -1, "waiting", "RequestArrived", ""), *changes]

    def decisions(self, first: int, last: int, limit: int = 1_000) -> list[Decided]:
        """Of these entries, but plans and tokens."""
        return self._decided("sequence BETWEEN ? AND ?", (first, last), limit)

    def decisions_about(self, request: int, until: int = EVER, limit: int = 1_000) -> list[Decided]:
        """The last so many."""
        return self._decided("request = ? AND sequence <= ?", (request, until), limit)

    def number_of(self, name: str) -> int | None:
        """Of a request by its id, else by its number, as the daemon's clients and the recording know it."""
        row = self._one("SELECT max(number) FROM requests WHERE life = ? AND request_id = ?", (name,))
        if row[0] is not None:
            return int(row[0])
        known = self._one("SELECT max(number) FROM requests WHERE life <= ? AND request_id = ?", (name,))
        if known[0] is not None:  # handed over from the process before
            return int(known[0])
        return int(name) if name.isdecimal() else None

    def _preemptions(self, where: str, values: tuple[Any, ...]) -> list[Preemption]:
        columns = ", ".join(Preemption._fields)
        rows = self._all(f"SELECT {columns} FROM preemptions WHERE life = ? AND {where} ORDER BY sequence, at", values)
        return [Preemption(*row) for row in rows]

    def _decided(self, where: str, values: tuple[Any, ...], limit: int) -> list[Decided]:
        rows = self._all(
            "SELECT sequence, at, now_ns, step, kind, request, other_request, reason, detail_json FROM decisions "
            f"WHERE life = ? AND {where} ORDER BY sequence DESC, at DESC LIMIT ?",
            (*values, limit),
        )
        return [Decided(*[*row[:8], json.loads(row[8])]) for row in reversed(rows)]

    def _one(self, query: str, values: tuple[Any, ...]) -> Any:
        return self._database.execute(query, (self._life, *values)).fetchone()

    def _all(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        return self._database.execute(query, (self._life, *values)).fetchall()


_STATUS_AFTER = {
    "RequestAdmitted": "running",
    "RequestPreempted": "preempted",
    "RequestFinished": "finished",
    "RequestRejected": "rejected",
}
