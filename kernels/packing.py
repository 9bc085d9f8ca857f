"""Sequences' rows → the arrays that a backend takes: tokens, positions, block tables, slots, rows that need logits."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernels.backend import Integers, StepBatch


class SequenceRows(NamedTuple):
    """One sequence's part in a step.

    token_ids      the tokens to compute, at positions start …
    block_table    the sequence's blocks in order, long enough for start + len(token_ids) tokens
    num_logits     so many of its last rows need logits
    """

    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    num_logits: int


def pack_batch(sequences: Sequence[SequenceRows], block_size: int) -> StepBatch:
    """The step's arrays, rows in the order of `sequences`, of which there is at least one."""
    counts = np.array([len(sequence.token_ids) for sequence in sequences])
    starts = np.array([sequence.start for sequence in sequences])
    query_starts = np.concatenate([[0], np.cumsum(counts)])
    tables = _block_tables(sequences, starts + counts, block_size)
    positions = np.concatenate([np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)])
    sequence_of_row = np.repeat(np.arange(len(sequences)), counts)
    blocks = tables[sequence_of_row, positions // block_size]
    rows_left = query_starts[1:][sequence_of_row] - np.arange(len(positions))
    num_logits = np.array([sequence.num_logits for sequence in sequences])
    return StepBatch(
        token_ids=_array([token_id for sequence in sequences for token_id in sequence.token_ids]),
        positions=_array(positions),
        slot_mapping=_array(blocks * block_size + positions % block_size),
        query_starts=_array(query_starts),
        context_lengths=_array(starts + counts),
        block_tables=_array(tables),
        fresh_blocks=_array(blocks[positions % block_size == 0]),
        logit_rows=_array(np.flatnonzero(rows_left <= num_logits[sequence_of_row])),
    )


def _block_tables(sequences: Sequence[SequenceRows], context_lengths: Integers, block_size: int) -> Integers:
    num_blocks = -(-context_lengths // block_size)
    tables = np.full((len(sequences), int(num_blocks.max())), -1, dtype=np.int64)
    for row, (sequence, needed) in enumerate(zip(sequences, num_blocks, strict=True)):
        assert len(sequence.block_table) >= needed, "the core gave too few blocks for the rows it planned"
        tables[row, :needed] = sequence.block_table[:needed]
    return tables


def _array(values: object) -> Integers:
    return np.ascontiguousarray(values, dtype=np.int64)
