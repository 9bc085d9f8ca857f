"""What is looked up in running totals and buffers is what going through everything would find."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.viewer.columns import KINDS
from replay.viewer.framing import Array
from replay.viewer.names import Names
from replay.viewer.sums import Sums

FAR_NS = 10**16  # sums of a thousand such times do not fit into 64 bits
SLICES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 4), st.integers(0, 9)), max_size=40)
PLACES = st.floats(-5, 90, allow_nan=False)


@settings(deadline=None)
@given(SLICES, PLACES, PLACES, st.sampled_from([0, FAR_NS]))
def test_sums_over_a_range_are_those_of_its_slices(
    slices: list[tuple[int, int, int, int]], one: float, other: float, far: int
) -> None:
    values = np.array(slices, np.float64).reshape(-1, 4)
    begins, ends = values[:, 0] + far, values[:, 0] + values[:, 1] + far
    kinds, tokens = values[:, 2].astype(np.uint8), values[:, 3]

    def stretches(axis: str) -> tuple[Array, Array]:
        return begins, ends

    begin, end = float(min(one, other) + far), float(max(one, other) + far)
    by_kind, num_tokens = Sums(KINDS, kinds, tokens, stretches).over("time", begin, end)
    for number, name in enumerate(KINDS):
        inside = (kinds == number) & (ends >= begin) & (begins <= end)
        taken = np.minimum(ends[inside], end) - np.maximum(begins[inside], begin)
        assert by_kind[name]["count"] == inside.sum()
        assert abs(by_kind[name]["busy"] - taken.sum()) <= 1e-9 * len(slices) * max(1, 90)
        if name in num_tokens:
            assert num_tokens[name] == tokens[inside & (ends <= end)].sum()


@settings(deadline=None)
@given(st.lists(st.text("abc\x00é\ud800", max_size=5), max_size=20), st.text("abcé", max_size=3))
def test_names_are_found_by_what_is_in_them_and_not_across_two(texts: list[str], wanted: str) -> None:
    names = Names()
    for text in texts:
        names.append(text)
    assert [names[place] for place in range(len(names))] == texts
    assert names.having(wanted).tolist() == [place for place, text in enumerate(texts) if wanted in text]
