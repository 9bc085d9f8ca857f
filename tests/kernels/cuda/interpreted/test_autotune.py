"""Tiles are chosen for their speed among those of equal bits alone: bits of the interpreter, times invented."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels.cuda.autotune import DoesNotFit, NotInvariant, choose, same_bits
from kernels.cuda.device_bench import DeviceBench, fixed_planes
from kernels.cuda.planes import LAYOUTS
from kernels.cuda.tile_cache import TileCache, sources_digest
from kernels.cuda.tiles import Order, Shape, Tile, candidates, default_plan
from kernels.cuda.tuned_weights import tune
from kernels.cuda.weights import pack
from tests.kernels.cuda.stored_matrices import stored_matrix

SHAPE = Shape(LAYOUTS["Q4_1"], 33, 1024)  # two splits
FIRST = default_plan(SHAPE).tiles[0]
OTHER_DEPTH = FIRST._replace(order=Order(128, FIRST.order.splits))
KEY = {"device": "invented", "sources": sources_digest()}


class Arithmetic:
    """A device without kernels: bits are a function of tile and rows, and so are times."""

    num_rows = 200

    def __init__(self, bits: Callable[[Tile, int], float], seconds: Callable[[Tile, int], float]) -> None:
        self._bits, self._seconds = bits, seconds
        self.asked: list[Shape] = []

    def run(self, shape: Shape, tile: Tile, num_rows: int) -> NDArray[np.float32]:
        self.asked.append(shape)
        return np.full((num_rows, 4), self._bits(tile, num_rows), np.float32)

    def seconds(self, shape: Shape, tile: Tile, num_rows: int) -> float:
        return self._seconds(tile, num_rows)


def test_kernels_of_one_order_are_one_group_and_another_depth_is_not() -> None:
    spread = FIRST._replace(rows=16)
    serial, other_depth = spread._replace(spread=False), spread._replace(order=OTHER_DEPTH.order)
    shape = Shape(LAYOUTS["Q4_1"], 33, 256)
    _, members = same_bits(shape, (spread, other_depth, serial), DeviceBench(torch.device("cpu"), num_rows=18))
    assert members == [spread, serial]


def test_the_fastest_of_other_bits_is_not_taken() -> None:
    fast = FIRST._replace(num_stages=5)
    tiles = (FIRST, OTHER_DEPTH, fast)
    times = {FIRST: 3.0, OTHER_DEPTH: 1.0, fast: 2.0}
    bench = Arithmetic(lambda tile, rows: tile.order.depth, lambda tile, rows: times[tile])
    assert choose(SHAPE, tiles, bench).plan.tiles == (fast,)


def test_a_tile_that_does_not_fit_the_device_is_passed_over() -> None:
    large = FIRST._replace(outputs=128)

    def bits(tile: Tile, rows: int) -> float:
        if tile == large:
            raise DoesNotFit("out of resource: shared memory")
        return 0.0

    _, members = same_bits(SHAPE, (FIRST, large), Arithmetic(bits, lambda tile, rows: 1.0))
    assert members == [FIRST]
    with pytest.raises(DoesNotFit):
        same_bits(SHAPE, (large, FIRST), Arithmetic(bits, lambda tile, rows: 1.0))


def test_few_rows_may_have_another_tile_than_many() -> None:
    few, many = FIRST._replace(rows=16), FIRST._replace(rows=128)
    bench = Arithmetic(lambda tile, rows: 1.0, lambda tile, rows: abs(tile.rows - rows))
    plan = choose(SHAPE, (FIRST, few, many), bench).plan
    assert [plan.tile(rows) for rows in (1, 16, 17, 64, 65, 5000)] == [few, few, FIRST, FIRST, many, many]


def test_a_tile_whose_rows_follow_their_company_is_left_out() -> None:
    loose = FIRST._replace(rows=128)

    def bits(tile: Tile, rows: int) -> float:
        return float(rows == Arithmetic.num_rows) if tile == loose else 1.0

    bench = Arithmetic(bits, lambda tile, rows: 1.0)
    assert same_bits(SHAPE, (FIRST, loose), bench)[1] == [FIRST]
    with pytest.raises(NotInvariant, match="rows other bits alone"):
        choose(SHAPE, (loose, FIRST), bench)


def test_times_never_change_the_bits() -> None:
    weight = pack([stored_matrix("Q4_1", 33, 1024)], "cpu")
    shape = weight.parts[0].shape
    digests = {
        tune([weight], Arithmetic(lambda tile, rows: tile.order.depth, seconds), None, is_measured).bits
        for seconds in (lambda tile, rows: tile.rows, lambda tile, rows: -tile.rows)
        for is_measured in (True, False)
    }
    assert len(digests) == 1
    assert {tile.order for tile in candidates(shape)} == {default_plan(shape).order}


def test_a_choice_is_made_once(tmp_path: Path) -> None:
    weights = [pack([stored_matrix("Q4_1", 33, 1024, seed=seed)], "cpu") for seed in (1, 2)]
    bench = Arithmetic(lambda tile, rows: 1.0, lambda tile, rows: tile.rows)
    first = tune(weights, bench, TileCache(tmp_path, KEY))
    assert bench.asked
    assert len({id(weight.parts[0].plan) for weight in first.weights}) == 1  # one shape, one choice
    bench.asked.clear()
    again = tune(weights, bench, TileCache(tmp_path, KEY))
    assert not bench.asked
    assert again.bits == first.bits
    assert [weight.parts[0].plan for weight in again.weights] == [weight.parts[0].plan for weight in first.weights]


@pytest.mark.parametrize("harm", ["", "[]", '{"choices": {}}', "{", None])
def test_a_file_that_is_not_understood_is_as_none(tmp_path: Path, harm: str | None) -> None:
    bench = Arithmetic(lambda tile, rows: 1.0, lambda tile, rows: 1.0)
    weight = pack([stored_matrix("Q4_1", 33, 1024)], "cpu")
    cache = TileCache(tmp_path, KEY)
    tune([weight], bench, cache)
    text = cache.path.read_text()
    cache.path.write_text(text.replace('"depth"', '"deep"').replace("64", "65") if harm is None else harm)
    assert TileCache(tmp_path, KEY).get(weight.parts[0].shape) is None
    cache.path.write_text(text)
    assert TileCache(tmp_path, KEY).get(weight.parts[0].shape) is not None
    assert TileCache(tmp_path, {**KEY, "device": "another"}).get(weight.parts[0].shape) is None


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bench = Arithmetic(lambda tile, rows: 1.0, lambda tile, rows: 1.0)
    tuned = tune([pack([stored_matrix("Q4_1", 33, 1024)], "cpu")], bench, TileCache(tmp_path / "file" / "tiles", KEY))
    assert "could not be kept" in tuned.notice


def test_tiles_that_differ_are_refused_unless_measured() -> None:
    weight = pack([stored_matrix("Q4_1", 33, 1024)], "cpu")
    bench = Arithmetic(lambda tile, rows: tile.spread, lambda tile, rows: 1.0)
    with pytest.raises(NotInvariant, match="differ in bits"):
        tune([weight], bench, None, is_measured=False)
    plan = tune([weight], bench, None).weights[0].parts[0].plan
    assert not any(tile.spread for tile in plan.tiles)


@pytest.mark.parametrize("format", ["BF16", "Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K"])
def test_fixed_planes_have_the_kinds_of_packed_ones(format: str) -> None:
    packed = pack([stored_matrix(format, 6, 512)], "cpu").parts[0]
    fixed = fixed_planes(packed.shape, torch.device("cpu"))
    for name in ("values", "scales", "minimums", "super_scales"):
        a, b = getattr(fixed, name), getattr(packed.planes, name)
        assert (a is None) == (b is None)
        assert a is None or (a.shape == b.shape and a.dtype == b.dtype and a.is_contiguous())
