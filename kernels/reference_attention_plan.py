"""Which keys each query of a step reads and where they lie: worked out once, for all layers that see alike.

`reference_attention.py` says what the groups, tiles and splits are and computes with them. It must not know weights.
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


@dataclass(frozen=True, slots=True)
class Split:
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
class Tile:
    """
    query_rows   int64 [groups × queries]: row of the query; the row past the last where there is none
    real         int64 [n]: which of them are real …
    real_rows    int64 [n]: … and their rows
    """

    query_rows: torch.Tensor
    real: torch.Tensor
    real_rows: torch.Tensor
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What a step's attention reads and where; the same for all layers.

    unit     slots gathered in one piece: the largest number that divides both a block and a split
    window   keys that a query sees; 0: all up to itself
    """

    shape: DecoderShape
    unit: int
    window: int
    tiles: tuple[Tile, ...]

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
) -> Tile:
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
    return Tile(torch.from_numpy(query_rows), torch.from_numpy(real), torch.from_numpy(query_rows[real]), tuple(splits))


def _units(
    groups: _Groups, tables: NDArray[np.int64], split: int, shape: DecoderShape, block_size: int, unit: int
) -> NDArray[np.int64]:
    heads = np.arange(shape.num_kv_heads)
    tokens = split * SPLIT_KEYS + np.arange(0, SPLIT_KEYS, unit)
    blocks = tables[groups.sequence[:, None], tokens // block_size]
    units = (blocks[:, None, :] * shape.num_kv_heads + heads[None, :, None]) * (block_size // unit)
    flat: NDArray[np.int64] = (units + tokens % block_size // unit).reshape(-1)
    return flat


def _plan_split(groups: _Groups, split: int, units: NDArray[np.int64], shape: DecoderShape, window: int) -> Split:
    positions = groups.first[:, None] + np.arange(QUERIES_PER_GROUP)
    keys = split * SPLIT_KEYS + np.arange(SPLIT_KEYS)
    is_seen = keys <= positions[:, :, None]
    is_active = (groups.first // SPLIT_KEYS >= split)[:, None, None, None]
    if window:
        is_seen &= keys > positions[:, :, None] - window
        of_query = is_seen.any(axis=-1)
        is_active = np.repeat(of_query, shape.num_heads // shape.num_kv_heads, axis=1)[:, None, :, None]
    visible = torch.from_numpy(is_seen)[:, None, :, None, :].float()
    return Split(
        torch.from_numpy(units),
        visible,
        torch.where(visible > 0, 0.0, -torch.inf),
        None if is_active.all() else torch.from_numpy(is_active),
    )
