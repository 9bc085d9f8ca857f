"""What a step's attention reads and where: its queries in groups, and the groups' key splits shared out to programs.

    keys of a sequence   |  split 0: 0 … 255  |  split 1: 256 … 511  |  …       ascending, merged in this order
    queries              |0 … 7|8 … 15|16 …    groups by position: a query's place in its tile is fixed

A sequence with many rows is taken in wide groups, twice as long, which are items of a launch of their own.

An item is work for one program and one kv head: a group of queries and a run of its splits. Either it holds all of the
group's splits and gives the result, or it holds one and gives a partial result; a merge then takes a row's partial
results in ascending order. Which of the two follows from how busy the device would be, and changes no bit: an item
computes each split from nothing and merges it as the merge does (`attention.py`).

The arrays are numpy's, for the host to copy as it likes; `Plan` is where they lie on the device. The plan must
not know layers: one serves them all, windows or not.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.backend import StepBatch
from kernels.cuda.launch import power_of_two

SPLIT_KEYS = 256
TILE_ROWS = 16  # query rows of a program: mma.sync is the tensor cores' instruction for them on every architecture
WIDE_ROWS = 32  # of one for a prefill: the same instruction twice
ITEM_FIELDS = 8
MERGE_FIELDS = 4

Int32 = NDArray[np.int32]


class AttentionShape(NamedTuple):
    """What of a model and its KV memory decides the plan."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int

    @property
    def heads_tile(self) -> int:
        """Query heads of a kv head, as a tile holds them."""
        return power_of_two(self.num_heads // self.num_kv_heads)

    def group(self, rows: int = TILE_ROWS) -> int:
        """Queries of a group: a power of two, so that a group lies within one split."""
        return max(1, rows // self.heads_tile)


class Sharing(NamedTuple):
    """How work is shared out; changes no bit.

    num_programs   that the device runs at once
    max_partials   partial results of a row that there is memory for
    """

    num_programs: int
    max_partials: int


class PlanArrays(NamedTuple):
    """All int32, C-contiguous.

    counts         [3]: items, merges, wide items
    items          [items, 8], the wide ones last: sequence, position of the group's first query, its row (may lie
                   before the step's first), first and end of the real queries within the group, first and end split,
                   first partial result or -1
    merges         [merges, 4]: row, its first partial result, the step from one to the next, their number
    block_tables   [sequences, max blocks], as the batch has them
    """

    counts: Int32
    items: Int32
    merges: Int32
    block_tables: Int32


def plan_of(batch: StepBatch, shape: AttentionShape, sharing: Sharing, *, has_wide: bool = False) -> PlanArrays:
    """The plan of one step; its padding rows, if any, are no part of it.

    has_wide   sequences with the rows of a wide group or more are taken in wide groups; it changes no bit
    """
    wide = shape.group(WIDE_ROWS)
    is_wide = (np.diff(batch.query_starts) >= wide) & has_wide & (wide > shape.group())
    narrow_groups, wide_groups = _groups(batch, shape.group(), ~is_wide), _groups(batch, wide, is_wide)
    groups = np.concatenate((narrow_groups, wide_groups))
    of_wide = np.arange(len(groups)) >= len(narrow_groups)
    is_spread, first_partial = _shared_out(groups, shape, sharing)
    whole, spread = groups[~is_spread], groups[is_spread]
    num_splits = spread[:, 6]
    split = _counting(num_splits)
    partial = np.repeat(first_partial, num_splits) + split * np.repeat(spread[:, 4] - spread[:, 3], num_splits)
    pieces = np.repeat(spread, num_splits, axis=0)
    pieces[:, 5], pieces[:, 6], pieces[:, 7] = split, split + 1, partial
    items = np.concatenate((whole, pieces))
    of_wide = np.concatenate((of_wide[~is_spread], np.repeat(of_wide[is_spread], num_splits)))
    items = items[np.lexsort((items[:, 5] - items[:, 6], of_wide))]  # the longest first: they end last
    merges = _merges(spread, first_partial)
    num_wide = int(of_wide.sum())
    counts = np.array((len(items) - num_wide, len(merges), num_wide), dtype=np.int32)
    tables = np.ascontiguousarray(batch.block_tables, dtype=np.int32)
    return PlanArrays(counts, items.astype(np.int32), merges.astype(np.int32), tables)


def _groups(batch: StepBatch, group: int, is_wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """All groups of the sequences wanted, each as an item that holds all of its splits: [groups, 8]."""
    counts = np.diff(batch.query_starts)
    ends = batch.context_lengths
    begins = ends - counts
    of_sequence = np.where(is_wanted, -(-ends // group) - begins // group, 0)
    sequence = np.repeat(np.arange(len(ends)), of_sequence)
    first = (begins // group)[sequence] * group + _counting(of_sequence) * group
    row = batch.query_starts[:-1][sequence] + first - begins[sequence]
    low = np.maximum(begins[sequence] - first, 0)
    high = np.minimum(ends[sequence] - first, group)
    num_splits = first // SPLIT_KEYS + 1
    nothing = np.zeros_like(first)
    return np.stack((sequence, first, row, low, high, nothing, num_splits, nothing - 1), axis=1)


def _shared_out(
    groups: NDArray[np.int64], shape: AttentionShape, sharing: Sharing
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which groups are spread over programs, and the first partial result of each of those.

    A group is spread when it has more than a program's fair share of all splits, the first come first served.
    """
    num_splits = groups[:, 6]
    fair = max(1, int(num_splits.sum()) * shape.num_kv_heads // sharing.num_programs)
    needed = np.where(num_splits > fair, num_splits * (groups[:, 4] - groups[:, 3]), 0)
    ends = np.cumsum(needed)
    is_spread = (needed > 0) & (ends <= sharing.max_partials)
    return is_spread, (ends - needed)[is_spread]


def _merges(spread: NDArray[np.int64], first_partial: NDArray[np.int64]) -> NDArray[np.int64]:
    """One for each row of the groups that are spread: [rows, 4]."""
    num_real = spread[:, 4] - spread[:, 3]
    rank = _counting(num_real)
    row, first, step, count = (
        np.repeat(field, num_real) for field in (spread[:, 2] + spread[:, 3], first_partial, num_real, spread[:, 6])
    )
    return np.stack((row + rank, first + rank, step, count), axis=1)


def _counting(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 … n-1 for each n of `lengths`, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - lengths, lengths)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan on the device, in memory of fixed size and place, so that a captured graph finds the next plan there.

    num_programs                          to start, whatever the plan holds: the work is dealt out among them
    has_wide                              a launch for wide items is made, whatever the plan holds
    counts, items, merges, block_tables   as in PlanArrays, with room for the largest step
    mixed                                 float32 [max partials, heads, head dim]: partial results
    highest, totals                       float32 [max partials, heads]: their maxima and sums
    """

    num_programs: int
    counts: torch.Tensor
    items: torch.Tensor
    merges: torch.Tensor
    block_tables: torch.Tensor
    mixed: torch.Tensor
    highest: torch.Tensor
    totals: torch.Tensor
    has_wide: bool = False

    @classmethod
    def room(
        cls,
        shape: AttentionShape,
        sharing: Sharing,
        *,
        max_rows: int,
        max_sequences: int,
        max_blocks: int,
        has_wide: bool = False,
        device: torch.device | str,
    ) -> "Plan":
        """Room for steps of `max_rows` rows in `max_sequences` sequences of at most `max_blocks` blocks."""
        partials = max(1, sharing.max_partials)

        def integers(*size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device)

        return cls(
            num_programs=sharing.num_programs,
            counts=integers(3),
            items=integers(max_rows + partials, ITEM_FIELDS),
            merges=integers(partials, MERGE_FIELDS),
            block_tables=integers(max_sequences, max_blocks),
            mixed=torch.zeros(partials, shape.num_heads, shape.head_dim, device=device),
            highest=torch.zeros(partials, shape.num_heads, device=device),
            totals=torch.zeros(partials, shape.num_heads, device=device),
            has_wide=has_wide,
        )

    def put(self, arrays: PlanArrays) -> None:
        """Copy a plan here, array by array. A step whose copies count stages all of them as one instead."""
        for target, source in ((self.counts, arrays.counts), (self.items, arrays.items), (self.merges, arrays.merges)):
            target[: len(source)].copy_(torch.from_numpy(source))
        rows, width = arrays.block_tables.shape
        self.block_tables[:rows, :width].copy_(torch.from_numpy(arrays.block_tables))
