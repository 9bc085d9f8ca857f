"""Delta debugging: what is left fails, and fails no more without any one item."""

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.shrink.ddmin import FirstFailing, ddmin, without_one


def first_containing(wanted: set[int]) -> tuple[list[int], FirstFailing[int]]:
    tried: list[int] = []

    def first_failing(candidates: list[list[int]]) -> int | None:
        for index, candidate in enumerate(candidates):
            tried.append(len(candidate))
            if wanted <= set(candidate):
                return index
        return None

    return tried, first_failing


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.data())
def test_exactly_the_needed_items_are_left(size: int, data: st.DataObject) -> None:
    wanted = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=5))
    _tried, first_failing = first_containing(wanted)
    assert ddmin(range(size), first_failing) == sorted(wanted)


def test_one_cause_among_many_is_found_in_few_tries() -> None:
    tried, first_failing = first_containing({617})
    assert ddmin(range(1_000), first_failing) == [617]
    assert len(tried) < 60


def test_where_failing_needs_all_nothing_is_left_out() -> None:
    _tried, first_failing = first_containing(set(range(8)))
    assert ddmin(range(8), first_failing) == list(range(8))


def test_without_one_lacks_each_item_once() -> None:
    assert without_one("abc") == [["b", "c"], ["a", "c"], ["a", "b"]]
