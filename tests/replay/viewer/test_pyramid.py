"""Pyramids: any stretch has the figures of its own values and of no others, however the values have grown."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.viewer.framing import Array
from replay.viewer.pyramid import FANOUT, FEW, Pyramid, num_levels, parts_of

NUM = FANOUT * FANOUT * FEW + 777  # three levels, the last block of each not whole
PLACES = st.lists(st.integers(0, NUM), min_size=1, max_size=40)


def random_values(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    values = draw.normal(size=NUM).astype(np.float32)
    values[draw.integers(0, NUM, NUM // 10)] = np.nan
    values[NUM // 3 : NUM // 3 + 5 * FANOUT] = np.nan  # blocks in which nothing is known
    return values


VALUES = random_values(0)


def expect_figures(pyramid: Pyramid, values: Array, begins: Array, ends: Array) -> None:
    found = pyramid.over(values, parts_of(begins, ends, num_levels(len(values))), len(begins))
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        known = values[begin:end][~np.isnan(values[begin:end])]
        assert found.num_known[place] == len(known)
        assert found.low[place] == known.min(initial=np.inf)
        assert found.high[place] == known.max(initial=-np.inf)
        assert np.isclose(found.total[place], known.sum(dtype=np.float64), rtol=1e-12, atol=1e-9)


@settings(deadline=None, max_examples=20)
@given(PLACES, PLACES)
def test_a_stretch_has_the_figures_of_its_own_values(firsts: list[int], others: list[int]) -> None:
    pyramid = Pyramid()
    pyramid.take(VALUES)
    pairs = np.sort(np.array(list(zip(firsts, others, strict=False))), axis=1)
    expect_figures(pyramid, VALUES, pairs[:, 0], pairs[:, 1])


def test_a_stretch_of_one_value_has_that_very_value() -> None:
    pyramid = Pyramid()
    pyramid.take(VALUES)
    places = np.flatnonzero(~np.isnan(VALUES))[:: NUM // 500]
    found = pyramid.over(VALUES, parts_of(places, places + 1, num_levels(NUM)), len(places))
    assert (found.low == VALUES[places]).all()
    assert (found.total == VALUES[places]).all()


@settings(deadline=None, max_examples=10)
@given(st.lists(st.tuples(st.integers(0, NUM), st.integers(0, 60)), min_size=1, max_size=4))
def test_values_that_came_or_changed_at_the_end_are_taken_in(growth: list[tuple[int, int]]) -> None:
    pyramid, values = Pyramid(), VALUES[:0]
    for seed, (length, num_changed) in enumerate(sorted(growth), 1):
        kept = values[: max(0, len(values) - num_changed)]
        values = np.concatenate((kept, random_values(seed)[len(kept) : length]))
        pyramid.cut(len(kept))
        pyramid.take(values)
        edges = np.linspace(0, len(values), 9).astype(int)
        expect_figures(pyramid, values, edges[:-1], edges[1:])
