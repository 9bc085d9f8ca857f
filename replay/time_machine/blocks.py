"""Every KV block at a moment: who has it, how many, how old what lies in it is, and whether it can be found."""

import sqlite3
from typing import NamedTuple

from engine.core.scheduler import Core

FREE, CACHED, OWNED, SHARED = "free", "cached", "owned", "shared"


class Block(NamedTuple):
    """
    owners            requests that have it in their tables, oldest first
    num_references    as the pool counts them
    state             free; cached: nobody has it, and it can be found; owned: one has it; shared: more than one
    digest            of its contents in the prefix index, in hex; "" when it cannot be found
    age_steps         steps since something last happened to it; -1: nothing has
    """

    number: int
    owners: tuple[int, ...]
    num_references: int
    state: str
    digest: str
    age_steps: int


class Pool(NamedTuple):
    """
    free        in the order in which they will be allocated
    evictable   cached blocks that nobody has, in the order in which they will be given up
    block_of    digest in hex → block, of all that can be found: the prefix index
    """

    num_blocks: int
    free: tuple[int, ...]
    evictable: tuple[int, ...]
    block_of: dict[str, int]


def pool(core: Core) -> Pool:
    inner = vars(core.pool)
    index = {digest.hex(): block for digest, block in inner["_block_of_digest"].items()}
    return Pool(core.pool.num_blocks, tuple(inner["_free"]), tuple(inner["_evictable"]), index)


def blocks(core: Core, database: sqlite3.Connection, life: int, sequence: int, step: int) -> list[Block]:
    """All of them, by number. Some 10 µs each."""
    counts, digests = vars(core.pool)["_reference_counts"], vars(core.pool)["_digest_of_block"]
    owners: dict[int, list[int]] = {}
    for request in core.requests.values():
        for number in request.block_table:
            owners.setdefault(number, []).append(request.number)
    return [
        Block(
            number,
            tuple(sorted(owners.get(number, ()))),
            counts[number],
            _state(counts[number], number in digests),
            digests[number].hex() if number in digests else "",
            _age(database, life, number, sequence, step),
        )
        for number in range(core.pool.num_blocks)
    ]


def _state(count: int, is_found: bool) -> str:
    if count == 0:
        return CACHED if is_found else FREE
    return OWNED if count == 1 else SHARED


def _age(database: sqlite3.Connection, life: int, block: int, sequence: int, step: int) -> int:
    row = database.execute(
        "SELECT step, to_step FROM block_events WHERE life = ? AND block = ? AND sequence <= ? "
        "ORDER BY sequence DESC, id DESC LIMIT 1",
        (life, block, sequence),
    ).fetchone()
    if row is None:
        return -1
    last = row["step"] if row["to_step"] is None else min(row["to_step"], step)
    return max(0, step - int(last))
