"""Paged attention of the reference backend, in tiles of one fixed shape and splits of a fixed number of keys.

    keys of a sequence   |  split 0: 0 … 255  |  split 1: 256 … 511  |  …       ascending, merged in this order
    queries              |0 1 2 3|4 5 6 7|8 …    groups of four, by position: a query's place in its group is fixed

A tile is GROUPS_PER_TILE groups of any sequences. For each split a tile gathers its groups' keys and values out of
their blocks and does two matrix products of one fixed shape; the partial results (maximum, sum, weighted values) are
merged into the running ones. A group whose keys end before the split keeps what it has, untouched. So a query's bits
depend on its own keys and values alone; which tile it is in, and beside whom, changes nothing.

With a window, a query sees the last `window` keys alone. Its first split then follows from its own position: the
running results begin at nothing (-inf, 0, 0), every split is merged into them, and a query without keys in one keeps
what it has.

Source: Milakov and Gimelshein, online softmax, 2018; Kwon et al., PagedAttention, SOSP 2023.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.backend import StepBatch
from kernels.decoder import DecoderShape

QUERIES_PER_GROUP = 4
GROUPS_PER_TILE = 8  # 16 would spare a batch of 16 decoding sequences 3 ms a step, and cost one alone 12 ms
SPLIT_KEYS = 256  # a multiple of QUERIES_PER_GROUP, so that the queries of a group see the same splits

_LOWEST_EXPONENT = -87.0  # exp of less is subnormal, for which MKL takes a slow path (measured 4 times slower)


@dataclass(frozen=True, slots=True)
class _Split:
    """One tile × one split.

    units      int64 [groups × kv heads × units of a split]: where its keys lie, in units of the gather
    visible    float32 [groups, 1, queries, 1, SPLIT_KEYS]: 1, and 0 for keys after the query …
    bias       … 0, and -inf for those (to multiply and to add is eight times faster than to fill by a mask)
    is_active  bool [groups, 1, 1, 1], with a window [groups, 1, queries × heads per kv head, 1]: the group (the query)
               has keys in this split; None: all have
    """

    units: torch.Tensor
    visible: torch.Tensor
    bias: torch.Tensor
    is_active: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class _Tile:
    """
    query_rows   int64 [groups × queries]: row of the query; the row past the last where there is none
    real         int64 [n]: which of them are real …
    real_rows    int64 [n]: … and their rows
    """

    query_rows: torch.Tensor
    real: torch.Tensor
    real_rows: torch.Tensor
    splits: tuple[_Split, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What a step's attention reads and where; the same for all layers.

    unit     slots gathered in one piece: the largest number that divides both a block and a split
    window   keys that a query sees; 0: all up to itself
    """

    shape: DecoderShape
    unit: int
    window: int
    tiles: tuple[_Tile, ...]

    @classmethod
    def of(
        cls, batch: StepBatch, shape: DecoderShape, block_size: int, *, zero_block: int, zero_row: int, window: int = 0
    ) -> "AttentionPlan":
        """`zero_block` and `zero_row` are the block and the query row that hold zeros: padding reads them."""
        unit = gcd(block_size, SPLIT_KEYS)
        groups = _Groups.of(batch, zero_row)
        tables = _padded_tables(batch, block_size, zero_block)
        tiles = []
        for start in range(0, len(groups.sequence), GROUPS_PER_TILE):
            tile = groups.part(start, start + GROUPS_PER_TILE)
            tiles.append(_plan_tile(tile, tables, shape, block_size, unit, window))
        return cls(shape, unit, window, tuple(tiles))


def attend(
    plan: AttentionPlan, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, attended: torch.Tensor
) -> None:
    """Write softmax(q·kᵀ × scale)·v of each row into `attended`; the scale is the shape's, or 1/√head_dim.

    queries        [rows padded to tiles + 1, num_heads, head_dim] float32, the last row zero
    keys, values   one layer's memory [blocks, kv heads, block size, head_dim] float32, this step's rows included
    attended       [num_rows, num_heads × head_dim] float32
    """
    for tile in plan.tiles:
        result = _attend_tile(plan, tile, queries, keys, values)
        attended.index_copy_(0, tile.real_rows, result.index_select(0, tile.real))


def _attend_tile(
    plan: AttentionPlan, tile: _Tile, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """One tile's results [groups × queries, num_heads × head_dim]."""
    shape = plan.shape
    kv_heads, per_kv = shape.num_kv_heads, shape.num_heads // shape.num_kv_heads
    by_kv_head = (GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP * per_kv)
    q = queries.index_select(0, tile.query_rows).mul_(shape.attention_scale or shape.head_dim**-0.5)
    q = q.view(GROUPS_PER_TILE, QUERIES_PER_GROUP, kv_heads, per_kv * shape.head_dim).transpose(1, 2)
    q = q.reshape(GROUPS_PER_TILE * kv_heads, QUERIES_PER_GROUP * per_kv, shape.head_dim)

    highest = total = mixed = torch.empty(0)
    if plan.window:
        highest = torch.full((GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP, per_kv, 1), -torch.inf)
        total, mixed = torch.zeros(*by_kv_head, 1), torch.zeros(*by_kv_head, shape.head_dim)
    for index, split in enumerate(tile.splits):
        is_first = index == 0 and not plan.window
        split_keys = _gather(keys, split.units, plan.unit)
        scores = torch.bmm(q, split_keys.transpose(1, 2))
        scores = scores.view(GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP, per_kv, SPLIT_KEYS)
        scores += split.bias
        split_highest = scores.amax(-1, keepdim=True)
        new_highest = split_highest if is_first else torch.maximum(highest, split_highest)
        weights = scores.sub_(new_highest).clamp_(min=_LOWEST_EXPONENT).exp_().mul_(split.visible)
        split_total = weights.sum(-1, keepdim=True).view(*by_kv_head, 1)
        split_mixed = torch.bmm(
            weights.view(-1, QUERIES_PER_GROUP * per_kv, SPLIT_KEYS), _gather(values, split.units, plan.unit)
        ).view(*by_kv_head, shape.head_dim)
        if is_first:
            highest, total, mixed = new_highest, split_total, split_mixed
            continue
        shrink = torch.exp((highest - new_highest).clamp_(min=_LOWEST_EXPONENT)).view(*by_kv_head, 1)
        highest = new_highest  # unchanged for a group or query without keys here: all its scores are -inf
        total = _merged(total, shrink, split_total, split.is_active)
        mixed = _merged(mixed, shrink, split_mixed, split.is_active)
    result = (mixed / total).view(GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP, per_kv * shape.head_dim)
    return result.transpose(1, 2).reshape(GROUPS_PER_TILE * QUERIES_PER_GROUP, shape.num_heads * shape.head_dim)


def _merged(
    running: torch.Tensor, shrink: torch.Tensor, partial: torch.Tensor, is_active: torch.Tensor | None
) -> torch.Tensor:
    merged = running * shrink + partial
    return merged if is_active is None else torch.where(is_active, merged, running)


def _gather(memory: torch.Tensor, units: torch.Tensor, unit: int) -> torch.Tensor:
    """A split's keys or values out of their blocks: [groups × kv heads, SPLIT_KEYS, head_dim], contiguous."""
    head_dim = memory.shape[-1]
    return memory.view(-1, unit * head_dim).index_select(0, units).view(-1, SPLIT_KEYS, head_dim)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of queries, those with the most splits first (order changes no bit; equal lengths waste least).

    sequence   [n]: sequence of the group; the one past the last for padding
    first      [n]: position of its first query, a multiple of QUERIES_PER_GROUP
    rows       [n, queries]: row of each query; zero_row where there is none
    """

    sequence: NDArray[np.int64]
    first: NDArray[np.int64]
    rows: NDArray[np.int64]
    zero_row: int

    @classmethod
    def of(cls, batch: StepBatch, zero_row: int) -> "_Groups":
        starts, ends = batch.query_starts, batch.context_lengths
        sequences, firsts, rows = [], [], []
        for index, end in enumerate(ends):
            begin = end - (starts[index + 1] - starts[index])
            first = np.arange(begin // QUERIES_PER_GROUP, -(-end // QUERIES_PER_GROUP)) * QUERIES_PER_GROUP
            positions = first[:, None] + np.arange(QUERIES_PER_GROUP)
            is_real = (positions >= begin) & (positions < end)
            rows.append(np.where(is_real, positions - begin + starts[index], zero_row))
            firsts.append(first)
            sequences.append(np.full(len(first), index))
        sequence, first = np.concatenate(sequences), np.concatenate(firsts)
        order = np.argsort(-(first // SPLIT_KEYS), kind="stable")
        padding = -len(order) % GROUPS_PER_TILE
        return cls(
            np.pad(sequence[order], (0, padding), constant_values=len(ends)),
            np.pad(first[order], (0, padding)),
            np.pad(np.concatenate(rows)[order], ((0, padding), (0, 0)), constant_values=zero_row),
            zero_row,
        )

    def part(self, start: int, end: int) -> "_Groups":
        return _Groups(self.sequence[start:end], self.first[start:end], self.rows[start:end], self.zero_row)


def _padded_tables(batch: StepBatch, block_size: int, zero_block: int) -> NDArray[np.int64]:
    """Block tables with the zero block past each sequence's end, to the end of its last split, and for padding."""
    tables, ends = batch.block_tables, batch.context_lengths
    num_splits = -(-int(ends.max()) // SPLIT_KEYS)
    padded = np.full((len(ends) + 1, -(-num_splits * SPLIT_KEYS // block_size)), zero_block, dtype=np.int64)
    for sequence, end in enumerate(ends):
        num_blocks = -(-int(end) // block_size)
        padded[sequence, :num_blocks] = tables[sequence, :num_blocks]
    return padded


def _plan_tile(
    groups: _Groups, tables: NDArray[np.int64], shape: DecoderShape, block_size: int, unit: int, window: int
) -> _Tile:
    query_rows = groups.rows.reshape(-1)
    real = np.flatnonzero(query_rows < groups.zero_row)
    last_split = groups.first // SPLIT_KEYS
    first_split = 0
    if window:
        first_seen = groups.first[(groups.rows < groups.zero_row).any(axis=1)].min() - window + 1
        first_split = max(0, int(first_seen)) // SPLIT_KEYS
    splits = [
        _plan_split(groups, split, _units(groups, tables, split, shape, block_size, unit), shape, window)
        for split in range(first_split, int(last_split.max()) + 1)
    ]
    return _Tile(
        torch.from_numpy(query_rows), torch.from_numpy(real), torch.from_numpy(query_rows[real]), tuple(splits)
    )


def _units(
    groups: _Groups, tables: NDArray[np.int64], split: int, shape: DecoderShape, block_size: int, unit: int
) -> NDArray[np.int64]:
    heads = np.arange(shape.num_kv_heads)
    tokens = split * SPLIT_KEYS + np.arange(0, SPLIT_KEYS, unit)
    blocks = tables[groups.sequence[:, None], tokens // block_size]
    units = (blocks[:, None, :] * shape.num_kv_heads + heads[None, :, None]) * (block_size // unit)
    flat: NDArray[np.int64] = (units + tokens % block_size // unit).reshape(-1)
    return flat


def _plan_split(groups: _Groups, split: int, units: NDArray[np.int64], shape: DecoderShape, window: int) -> _Split:
    positions = groups.first[:, None] + np.arange(QUERIES_PER_GROUP)
    keys = split * SPLIT_KEYS + np.arange(SPLIT_KEYS)
    is_seen = keys <= positions[:, :, None]
    is_active = (groups.first // SPLIT_KEYS >= split)[:, None, None, None]
    if window:
        is_seen &= keys > positions[:, :, None] - window
        of_query = is_seen.any(axis=-1)
        is_active = np.repeat(of_query, shape.num_heads // shape.num_kv_heads, axis=1)[:, None, :, None]
    visible = torch.from_numpy(is_seen)[:, None, :, None, :].float()
    return _Split(
        torch.from_numpy(units),
        visible,
        torch.where(visible > 0, 0.0, -torch.inf),
        None if is_active.all() else torch.from_numpy(is_active),
    )
