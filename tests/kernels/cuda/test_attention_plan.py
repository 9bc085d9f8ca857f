"""The plan names every split of every query once, in order, whichever way it shares the work out."""

import numpy as np
import pytest

from kernels.backend import StepBatch
from kernels.cuda.attention_plan import SPLIT_KEYS, WIDE_ROWS, AttentionShape, PlanArrays, Sharing, plan_of

SHAPE = AttentionShape(num_heads=9, num_kv_heads=3, head_dim=64, block_size=16)  # groups of four queries


def _batch(*sequences: tuple[int, int]) -> StepBatch:
    """Sequences of (first position, end) each; their rows follow one another."""
    counts = [end - begin for begin, end in sequences]
    empty = np.zeros(0, dtype=np.int64)
    tables = np.arange(len(sequences) * 100, dtype=np.int64).reshape(len(sequences), 100)
    ends = np.array([end for _, end in sequences])
    return StepBatch(empty, empty, empty, np.cumsum([0, *counts]), ends, tables, empty, empty)


def _splits_of_rows(plan: PlanArrays) -> dict[int, list[int]]:
    """row → its splits, in the order in which they are merged."""
    found: dict[int, list[int]] = {}
    partials: dict[int, int] = {}
    assert len(plan.items) == plan.counts[0] + plan.counts[2]
    for _, _, first_row, low, high, first, end, partial in plan.items:
        for row in range(first_row + low, first_row + high):
            if partial < 0:
                assert row not in found
                found[row] = list(range(first, end))
            else:
                slot = partial + row - first_row - low
                assert slot not in partials
                partials[slot] = int(first)
                assert end == first + 1
    for row, first, step, count in plan.merges:
        assert row not in found
        found[int(row)] = [partials.pop(first + index * step) for index in range(count)]
    assert not partials
    return found


BATCHES = {
    "decoding": _batch((5, 6), (1023, 1024), (1024, 1025), (255, 256)),
    "prefill": _batch((0, 300)),
    "mixed": _batch((700, 701), (250, 270), (3, 4), (1100, 1107)),
}


@pytest.mark.parametrize("has_wide", [False, True])
@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("sharing", [Sharing(1, 0), Sharing(8, 1000), Sharing(1000, 1000), Sharing(1000, 7)])
def test_every_row_sees_its_splits_in_order(name: str, sharing: Sharing, has_wide: bool) -> None:
    batch = BATCHES[name]
    counts = np.diff(batch.query_starts)
    positions = [p for n, end in zip(counts, batch.context_lengths, strict=True) for p in range(end - n, end)]
    expected = {row: list(range(position // SPLIT_KEYS + 1)) for row, position in enumerate(positions)}
    plan = plan_of(batch, SHAPE, sharing, has_wide=has_wide)
    assert _splits_of_rows(plan) == expected
    assert plan.counts[1] == len(plan.merges)
    assert (plan.counts[2] > 0) == (has_wide and name != "decoding")


def test_groups_begin_at_multiples_of_their_size() -> None:
    plan = plan_of(BATCHES["mixed"], SHAPE, Sharing(1000, 1000))
    assert SHAPE.group() == 4
    assert set(plan.items[:, 1] % SHAPE.group()) == {0}


def test_sequences_of_many_rows_are_taken_in_wide_groups_behind_the_others() -> None:
    plan = plan_of(BATCHES["mixed"], SHAPE, Sharing(1, 0), has_wide=True)
    narrow, wide = np.split(plan.items, [plan.counts[0]])
    assert set(narrow[:, 0]) == {0, 2, 3}  # one row, one row, seven
    assert set(wide[:, 0]) == {1}  # twenty
    assert SHAPE.group(WIDE_ROWS) == 8
    assert set(wide[:, 1] % 8) == {0}
    assert wide[:, 4].max() == 8


def test_a_step_that_fills_the_device_is_not_spread() -> None:
    plan = plan_of(_batch(*[(600, 601)] * 100), SHAPE, Sharing(132, 1000))
    assert len(plan.merges) == 0
    assert len(plan.items) == 100


def test_partial_results_stay_within_their_memory() -> None:
    plan = plan_of(_batch(*[(2000, 2001)] * 10), SHAPE, Sharing(10_000, 20))
    assert len(plan.merges) == 2  # of eight splits each
    assert plan.items[:, 7].max() < 20


def test_the_longest_items_come_first() -> None:
    plan = plan_of(BATCHES["mixed"], SHAPE, Sharing(1, 0))
    lengths = plan.items[:, 6] - plan.items[:, 5]
    assert list(lengths) == sorted(lengths, reverse=True)
