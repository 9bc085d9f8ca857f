"""Smallest, greatest and sum of any stretches of a long array, exactly, from figures of blocks kept beside it.

Level 0 are the values themselves; an entry of each level above stands for FANOUT of the one below. A stretch is made of
whole entries of the highest level that has some within it, and of what is left at both its ends on the levels below:
each value counts once, none of a neighbour does, and a few thousand entries are read where a million values lie.

    values   0 ........................................................  n
    stretch            [  .  .|###############################| .  )
                        level 0       level 1 (and above)      level 0

It must not know what the values are.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from replay.viewer.framing import Array

FANOUT = 32
FEW = 8 * FANOUT  # entries of a level for which none above is kept


class Figures(NamedTuple):
    """Of each entry or stretch. Nothing known in it: low +∞, high −∞, num_known 0. A value that is NaN is not known."""

    low: Array
    high: Array
    total: Array
    num_known: Array


_NOTHING = Figures(np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0), np.empty(0, np.int64))


class Part(NamedTuple):
    """What is read of one level: entries at `places`; of stretch `stretches[i]` those from `firsts[i]` on."""

    places: Array
    firsts: Array
    stretches: Array


class Pyramid:
    """Over values that grow at the end. `cut` when they change from somewhere on, `take` before `over`."""

    def __init__(self) -> None:
        self._levels: list[Figures] = []  # from level 1 on; whole entries only
        self._num_known = 0  # values that are in them

    def cut(self, length: int) -> None:
        """Values from there on are no longer what they were."""
        self._num_known = min(self._num_known, length)

    def take(self, values: Array) -> None:
        """Bring the levels up to date; costs what has come since."""
        below, is_values = Figures(values, values, values, values), True
        num, known = len(values), self._num_known
        for level in range(32):
            num, known = num // FANOUT, known // FANOUT
            if num < FEW:
                del self._levels[level:]
                break
            kept = self._levels[level] if level < len(self._levels) else _NOTHING
            known = min(known, len(kept.low))
            new = _blocks(below, known, num, is_values=is_values)
            whole = Figures(*(np.concatenate((old[:known], come)) for old, come in zip(kept, new, strict=True)))
            self._levels[level : level + 1] = [whole]
            below, is_values = whole, False
        self._num_known = len(values)

    def over(self, values: Array, parts: Sequence[Part], num_stretches: int) -> Figures:
        """Figures of each stretch; `parts` as `parts_of` has them for the number of levels there are."""
        found = Figures(
            np.full(num_stretches, np.inf), np.full(num_stretches, -np.inf), np.zeros(num_stretches),
            np.zeros(num_stretches, np.int64),
        )  # fmt: skip
        for level, (places, firsts, stretches) in enumerate(parts):
            if not len(firsts):
                continue
            read = _of_values(values[places]) if level == 0 else Figures(*(a[places] for a in self._levels[level - 1]))
            found.low[stretches] = np.minimum(found.low[stretches], np.minimum.reduceat(read.low, firsts))
            found.high[stretches] = np.maximum(found.high[stretches], np.maximum.reduceat(read.high, firsts))
            found.total[stretches] += np.add.reduceat(read.total, firsts)
            found.num_known[stretches] += np.add.reduceat(read.num_known, firsts)
        return found


def num_levels(num_values: int) -> int:
    """That a pyramid over so many has, the values among them."""
    num, levels = num_values // FANOUT, 1
    while num >= FEW:
        num, levels = num // FANOUT, levels + 1
    return levels


def parts_of(begins: Array, ends: Array, num_levels: int) -> list[Part]:
    """What to read of each level for the stretches [begins, ends) of values; the same for every pyramid as long."""
    parts = []
    for _ in range(num_levels - 1):
        above_begins, above_ends = -(-begins // FANOUT), ends // FANOUT
        has_whole = above_ends > above_begins
        heads_end = np.where(has_whole, above_begins * FANOUT, ends)
        tails_begin = np.where(has_whole, above_ends * FANOUT, ends)
        parts.append(_part((begins, tails_begin), (heads_end, ends)))
        begins, ends = np.where(has_whole, above_begins, 0), np.where(has_whole, above_ends, 0)
    return [*parts, _part((begins,), (ends,))]


def _part(begins: tuple[Array, ...], ends: tuple[Array, ...]) -> Part:
    """Of each stretch its pieces one behind the other."""
    first, lengths = np.stack(begins, 1).ravel(), (np.stack(ends, 1) - np.stack(begins, 1)).ravel()
    before = np.cumsum(lengths) - lengths
    places = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
    sizes = lengths.reshape(-1, len(begins)).sum(1)
    stretches = np.flatnonzero(sizes)
    return Part(places, (np.cumsum(sizes) - sizes)[stretches], stretches)


def _of_values(values: Array) -> Figures:
    known = ~np.isnan(values)
    if known.all():
        return Figures(values, values, values.astype(np.float64), known.astype(np.int64))
    low, high = np.where(known, values, np.inf), np.where(known, values, -np.inf)
    return Figures(low, high, np.where(known, values, 0).astype(np.float64), known.astype(np.int64))


def _blocks(below: Figures, first: int, beyond: int, *, is_values: bool) -> Figures:
    """Entries first to beyond of the level above. Halved again and again, which is fast whatever the processor."""
    chosen = slice(first * FANOUT, beyond * FANOUT)
    read = _of_values(below.low[chosen]) if is_values else Figures(*(array[chosen] for array in below))
    low, high, total, num_known = read
    for _ in range(FANOUT.bit_length() - 1):
        low, high = np.minimum(low[::2], low[1::2]), np.maximum(high[::2], high[1::2])
        total, num_known = total[::2] + total[1::2], num_known[::2] + num_known[1::2]
    return Figures(low, high, total, num_known)
