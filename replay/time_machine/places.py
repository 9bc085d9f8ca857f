"""Which entry is meant by a step, a sequence or a time: places in a recording, looked up in its index."""

import sqlite3
from typing import NamedTuple

from replay.refusal import CannotCompare


class Place(NamedTuple):
    """Behind an entry of a life; `sequence` one before the first entry is the life's beginning."""

    life: int
    sequence: int


class Extent(NamedTuple):
    """What is known of a life: its first and last entry, its first and last step (-1: none), and its times."""

    life: int
    first_sequence: int
    last_sequence: int
    first_step: int
    last_step: int
    opened_ns: int
    last_ns: int


def extents(database: sqlite3.Connection) -> list[Extent]:
    """Of all lives, in order."""
    found = []
    for row in database.execute("SELECT life, first_sequence, last_sequence, opened_ns, last_ns FROM lives ORDER BY 1"):
        life, first, last, opened_ns, last_ns = row
        steps = database.execute("SELECT min(step), max(step) FROM steps WHERE life = ?", (life,)).fetchone()
        first_step, last_step = (-1, -1) if steps[0] is None else steps
        found.append(Extent(life, first, last, first_step, last_step, opened_ns, last_ns))
    return found


def of_step(database: sqlite3.Connection, life: int, step: int) -> int:
    """The entry that planned it. Raises CannotCompare."""
    row = database.execute("SELECT sequence FROM steps WHERE life = ? AND step = ?", (life, step)).fetchone()
    if row is not None:
        return int(row[0])
    bounds = database.execute("SELECT min(step), max(step) FROM steps WHERE life = ?", (life,)).fetchone()
    if bounds[0] is None:
        raise CannotCompare(f"engine process {life} planned no step", "go to a sequence, or to another process")
    raise CannotCompare(
        f"step {step} is not in the recording of engine process {life}",
        f"its steps are {bounds[0]} to {bounds[1]}, but for what is missing between",
    )


def last_plan_before(database: sqlite3.Connection, life: int, now_ns: int) -> int | None:
    """The entry of the last plan until then; None when it is before the first."""
    row = database.execute(
        "SELECT sequence FROM steps WHERE life = ? AND planned_ns <= ? ORDER BY planned_ns DESC, step DESC LIMIT 1",
        (life, now_ns),
    ).fetchone()
    return None if row is None else int(row[0])


def keyframe_before(database: sqlite3.Connection, life: int, sequence: int) -> int | None:
    """The sequence of the last keyframe at or before this entry."""
    row = database.execute(
        "SELECT max(sequence) FROM keyframes WHERE life = ? AND sequence <= ?", (life, sequence)
    ).fetchone()
    return None if row[0] is None else int(row[0])
