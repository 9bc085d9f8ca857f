"""Tiles are compiled as a load would start them, by processes that share all of them out."""

from itertools import islice

import pytest
import triton
from triton.backends.compiler import GPUTarget

from kernels.cuda.tiles import candidates
from tests.gpu.compiled_ahead import compile_tile, tiles
from tests.kernels.cuda.compiling import ARCHITECTURES


class _Device:
    """What triton asks of a device before it compiles for one."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", ARCHITECTURES[1], 32)


def test_every_tile_is_one_processs() -> None:
    everything = list(tiles())
    assert len(set(everything)) == len(everything) > 80
    shared = [each for number in range(7) for each in islice(tiles(), number, None, 7)]
    assert set(shared) == set(everything)
    assert {tile for shape, tile in everything if shape == everything[0][0]} == set(candidates(everything[0][0]))


def test_a_tile_without_memory_is_compiled_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.mktemp("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    monkeypatch.setattr(triton.runtime.driver, "_active", _Device())
    compile_tile(*next(tiles()))
    assert [path.name for path in cache.rglob("*.cubin")] == ["_linear.cubin"]
