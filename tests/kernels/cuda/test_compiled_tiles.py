"""Every tile that may be chosen for a matrix product compiles for the GPUs we name. It takes minutes.

`make gpu-versions ARGS=--more` prints the table.
"""

import pytest

from kernels.cuda.linear_variants import MORE_VARIANTS
from tests.kernels.cuda.compiling import Compiled, compile_all
from tests.kernels.cuda.test_compiled import MAX_SHARED

NAMES = {variant.name for variant in MORE_VARIANTS}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        return [result for result in compile_all(more=True) if result.variant in NAMES]


@pytest.mark.slow
def test_every_tile_fits_without_spilling(compiled: list[Compiled]) -> None:
    assert [each for each in compiled if each.spilled or each.shared > MAX_SHARED[each.architecture]] == []


@pytest.mark.slow
def test_all_tiles_are_made_of_one_instruction(compiled: list[Compiled]) -> None:
    """Else their bits could not be equal, and a measurement would have nothing to choose from."""
    products = {(each.architecture, each.products) for each in compiled}
    assert products == {(80, "mma.sync"), (90, "wgmma"), (100, "tcgen05.mma")}
