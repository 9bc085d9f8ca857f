"""Every kernel compiles for the GPUs we name, within their registers and shared memory, though none is here."""

import re

import pytest

from kernels.cuda.attention_plan import WIDE_ROWS
from kernels.cuda.launch import INTERPRETED
from tests.kernels.cuda.compiling import ARCHITECTURES, Compiled, compile_all, variants

MAX_SHARED = {
    80: 99 * 1024,  # of an L4 or A10, for which the same is compiled; an A100 has 163
    90: 227 * 1024,
    100: 227 * 1024,
}  # bytes a program may have, CUDA C++ guide, table of limits
MAX_REGISTERS = 255


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    assert not INTERPRETED
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        return compile_all()


def test_every_variant_compiles_for_every_architecture(compiled: list[Compiled]) -> None:
    built = {(result.variant, result.architecture) for result in compiled}
    wanted = {(name, a) for name, variant in variants().items() for a in ARCHITECTURES if a >= variant.minimum}
    assert built == wanted


def test_no_variant_spills_registers(compiled: list[Compiled]) -> None:
    assert [result for result in compiled if result.spilled] == []


def test_every_variant_fits_the_multiprocessor(compiled: list[Compiled]) -> None:
    too_large = [
        result
        for result in compiled
        if result.shared > MAX_SHARED[result.architecture] or not 0 < result.registers <= MAX_REGISTERS
    ]
    assert too_large == []


def test_no_numbers_are_added_up_by_atomics(compiled: list[Compiled]) -> None:
    assert [result for result in compiled if result.atomics] == []


def test_logits_are_changed_by_correctly_rounded_operations_alone(compiled: list[Compiled]) -> None:
    """So that they have the reference's bits, which the order of candidates and the drawn token follow from."""
    assert {each.loose for each in compiled if each.variant.startswith(("changes of", "allowed of"))} == {""}
    assert any(each.loose for each in compiled), "the search finds what is loose elsewhere"


def test_attention_is_made_of_one_instruction_everywhere(compiled: list[Compiled]) -> None:
    products = {result.products for result in compiled if result.variant.startswith("attend ")}
    assert products == {"mma.sync"}


def test_wide_tiles_of_attention_are_laid_out_as_narrow_ones(compiled: list[Compiled]) -> None:
    """The same instruction, and no warp has a part of another's rows: so a row's sums are the same in both."""
    attention = {(each.variant, each.architecture): each for each in compiled if each.variant.startswith("attend ")}
    wide = {key: each for key, each in attention.items() if key[0].endswith(f", {WIDE_ROWS} rows")}
    assert len(wide) * 2 == len(attention) > 0
    for (name, architecture), each in wide.items():
        narrow = attention[name.removesuffix(f", {WIDE_ROWS} rows"), architecture]
        assert each.layouts == narrow.layouts
        assert re.search(r"warpsPerCTA = \[1, [48]\].*instrShape = \[16, 8\]", each.layouts), each.layouts


def test_integers_are_never_specialised() -> None:
    """Triton would compile anew for a count that is 1 or a multiple of 16."""
    loose = [
        (name, parameter.name)
        for name, variant in variants().items()
        for parameter in variant.kernel.params
        if variant.signature.get(parameter.name, "*").startswith(("i", "u")) and not parameter.do_not_specialize
    ]
    assert loose == []
