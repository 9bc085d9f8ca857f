"""Tiles: what is merged can still be summed, what is wide enough stays as it is, and frames come back as they went."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.viewer.columns import KINDS
from replay.viewer.errors import BadQuestion
from replay.viewer.framing import framed, unframed
from replay.viewer.merging import MERGED, Slices, merged
from replay.viewer.viewed import Viewed
from tests.replay.viewer.asked import ask, ask_binary

STRETCHES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.integers(0, 4)), min_size=0, max_size=60)


def slices_from(rows: list[list[tuple[int, int, int]]]) -> Slices:
    """Of each row (gap before it, length, kind)."""
    found: list[tuple[int, int, int, int]] = []
    for row, stretches in enumerate(rows):
        at = 0
        for gap, length, kind in stretches:
            found.append((row, kind, at + gap, at + gap + length))
            at += gap + length
    values = np.array(found, np.float64).reshape(-1, 4)
    begin, end = values[:, 2], values[:, 3]
    ones = np.ones(len(values), np.uint32)
    kinds = values[:, 1].astype(np.uint8)
    return Slices(
        values[:, 0].astype(np.uint32), kinds, 0 * kinds, begin, end, end - begin, ones.astype(np.uint64), ones
    )


@settings(deadline=None)
@given(st.lists(STRETCHES, min_size=1, max_size=4), st.sampled_from([0.5, 1, 7, 50, 5_000]))
def test_merging_keeps_the_sums_of_every_row(rows: list[list[tuple[int, int, int]]], pixel: float) -> None:
    slices = slices_from(rows)
    joined = merged(slices, pixel)
    for row in range(len(rows)):
        before, after = slices.row == row, joined.row == row
        for name in ("busy", "tokens", "num_parts"):
            assert getattr(joined, name)[after].sum() == getattr(slices, name)[before].sum()
        if before.any():
            assert joined.begin[after].min() == slices.begin[before].min()
            assert joined.end[after].max() == slices.end[before].max()
    wide = slices.end - slices.begin >= pixel
    kept = joined.flags & MERGED == 0
    assert set(zip(slices.row[wide], slices.begin[wide], slices.end[wide], strict=True)) <= set(
        zip(joined.row[kept], joined.begin[kept], joined.end[kept], strict=True)
    )
    assert (joined.busy <= joined.end - joined.begin).all()


def test_at_most_a_few_slices_are_left_of_a_pixel_however_many_it_holds() -> None:
    joined = merged(slices_from([[(0, 1, number % 5) for number in range(10_000)]]), 100.0)
    assert len(joined.row) == 100
    assert (joined.num_parts == 100).all()
    assert (joined.flags == MERGED).all()


def test_a_merged_slice_bears_the_kind_that_takes_the_most_of_it() -> None:
    joined = merged(slices_from([[(0, 5, 2), (0, 3, 1), (0, 4, 1)]]), 1_000.0)
    assert joined.kind.tolist() == [1]


def test_a_frame_comes_back_as_it_went() -> None:
    arrays = {"a": np.arange(3, dtype=np.uint8), "b": np.array([1.5]), "c": np.arange(5, dtype=np.int32)}
    body = framed({"axis": "time"}, arrays)
    header, back = unframed(body)
    assert header["axis"] == "time"
    assert all((back[name] == array).all() and back[name].dtype == array.dtype for name, array in arrays.items())
    offset = 4 + int.from_bytes(body[:4], "little")
    assert all(array.nbytes for array in back.values())
    assert body.index(arrays["b"].tobytes(), offset) % 8 == 0


def test_all_slices_are_in_a_tile_of_everything(viewed: Viewed) -> None:
    for axis in ("time", "step"):
        header, arrays = ask_binary(viewed, "timeline", axis=axis, rows="0,4096", width=8192, from_=-1e12, to=1e12)
        with viewed.database() as database:
            num, num_tokens, busy = database.execute(
                "SELECT count(*), sum(tokens), sum(to_ns - from_ns) FROM slices"
            ).fetchone()
        assert header["num_slices"] == num == int(arrays["count"].sum())
        assert num_tokens == int(arrays["tokens"].sum())
        assert axis == "step" or busy == arrays["busy"].sum()
        assert header["merged"]


def test_the_recording_that_is_looked_at_holds_every_kind_of_slice(viewed: Viewed) -> None:
    by_kind = ask(viewed, "area")["by_kind"]
    assert all(by_kind[kind]["count"] > 0 for kind in KINDS)


def test_rows_stand_still_while_the_view_moves_and_alone_who_lives_is_shown_on_demand(viewed: Viewed) -> None:
    everything, _ = ask_binary(viewed, "timeline", rows="0,4096")
    numbers = [row["request"] for row in everything["rows"]]
    assert numbers == sorted(numbers)
    narrow, arrays = ask_binary(viewed, "timeline", rows="0,4096", from_=1e8, to=1.1e8)
    assert narrow["rows"] == everything["rows"]
    alive, _ = ask_binary(viewed, "timeline", rows="0,4096", from_=1e8, to=1.1e8, alive=1)
    living = [row["request"] for row in alive["rows"]]
    assert 0 < len(living) < len(numbers)
    assert {numbers[row] for row in arrays["row"].tolist()} <= set(living)


def test_rows_are_grouped_and_filtered(viewed: Viewed) -> None:
    grouped, _ = ask_binary(viewed, "timeline", rows="0,4096", group="state")
    groups = [row["group"] for row in grouped["rows"]]
    assert groups == sorted(groups)
    assert set(groups) >= {"cancelled", "length"}
    preempted, _ = ask_binary(viewed, "timeline", rows="0,4096", filter="is:preempted")
    with viewed.database() as database:
        expected = {number for (number,) in database.execute("SELECT number FROM requests WHERE preemptions > 0")}
    assert {row["request"] for row in preempted["rows"]} == expected
    one, _ = ask_binary(viewed, "timeline", filter="id:req-13")
    assert [row["request_id"] for row in one["rows"]] == ["req-13"]


@pytest.mark.parametrize(
    ("route", "parameters", "field"),
    [
        ("timeline", {"width": 0}, "width"),
        ("timeline", {"rows": "0,1e9"}, "rows"),
        ("timeline", {"life": 2}, "life"),
        ("timeline", {"from_": "nan"}, "from"),
        ("strips", {"names": "running,secret"}, "names"),
        ("timeline", {"group": "1; DROP TABLE steps"}, "group"),
        ("arrows", {"requests": "1,x"}, "requests"),
        ("step/{life}/{step}", {"life": 1, "step": 10**9}, "step"),
        ("request/{life}/{number}", {"life": 1, "number": 10**9}, "number"),
    ],
)
def test_a_wrong_parameter_is_named(viewed: Viewed, route: str, parameters: dict[str, object], field: str) -> None:
    with pytest.raises(BadQuestion) as caught:
        ask(viewed, route, **parameters)
    assert caught.value.field == field
