"""Since when what lies in each block has been there, at one step after the other: all writes are read once.

Of a recording with very many writes each block is asked for by itself. It must not know states.
"""

import sqlite3

import numpy as np

from replay.viewer.answers.blocks import NEVER, ages_of
from replay.viewer.framing import Array

MAX_WRITES = 2_000_000
_WRITES = """
SELECT sequence, block, coalesce(to_step, step) FROM block_events WHERE life = ? AND kind = 'written'
ORDER BY sequence, id
"""


class BlockAges:
    def __init__(self, database: sqlite3.Connection, life: int) -> None:
        self._database, self._life = database, life
        (last,) = database.execute("SELECT coalesce(max(id), 0) FROM block_events").fetchone()
        self._is_read = last <= MAX_WRITES
        rows = database.execute(_WRITES, (life,)).fetchall() if self._is_read else []
        self._sequences, self._blocks, self._steps = np.array(rows, np.int64).reshape(-1, 3).T
        self._num_seen = 0
        self._written = np.full(1 + (int(self._blocks.max()) if rows else 0), -1, np.int64)

    def at(self, step: int, sequence: int, num_blocks: int) -> Array:
        """Steps since it was written, as `blocks` has them; to be asked in order of time.

        sequence   of the entry with the step's result
        """
        if not self._is_read:
            return ages_of(self._database, self._life, step, num_blocks)
        num = int(np.searchsorted(self._sequences, sequence, "right"))
        new = slice(self._num_seen, num)
        self._written[self._blocks[new]] = self._steps[new]  # of several writes the last one counts
        self._num_seen = num
        ages = np.full(num_blocks, NEVER, np.uint32)
        known = np.flatnonzero(self._written[:num_blocks] >= 0)
        ages[known] = step - np.minimum(self._written[known], step)
        return ages
