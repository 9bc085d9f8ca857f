"""Sequences' rows become the arrays that backends take."""

import pytest

from kernels.packing import SequenceRows, pack_batch


def test_rows_of_several_sequences_are_laid_out_one_after_another() -> None:
    batch = pack_batch(
        [
            SequenceRows([10, 11, 12], 0, (7, 3), 0),  # a first chunk
            SequenceRows([20], 5, (1, 0, 4), 1),  # a decode
            SequenceRows([30, 31, 32, 33], 2, (9, 8, 5), 2),  # a later chunk, its last two rows wanted
        ],
        block_size=2,
    )
    assert batch.token_ids.tolist() == [10, 11, 12, 20, 30, 31, 32, 33]
    assert batch.positions.tolist() == [0, 1, 2, 5, 2, 3, 4, 5]
    assert batch.slot_mapping.tolist() == [14, 15, 6, 9, 16, 17, 10, 11]
    assert batch.query_starts.tolist() == [0, 3, 4, 8]
    assert batch.context_lengths.tolist() == [3, 6, 6]
    assert batch.block_tables.tolist() == [[7, 3, -1], [1, 0, 4], [9, 8, 5]]
    assert batch.fresh_blocks.tolist() == [7, 3, 8, 5]
    assert batch.logit_rows.tolist() == [3, 6, 7]


def test_a_table_may_be_longer_than_needed_but_not_shorter() -> None:
    batch = pack_batch([SequenceRows([1], 0, (4, 5, 6), 1)], block_size=2)
    assert batch.block_tables.tolist() == [[4]]
    with pytest.raises(AssertionError, match="too few blocks"):
        pack_batch([SequenceRows([1, 2, 3], 0, (4,), 1)], block_size=2)
