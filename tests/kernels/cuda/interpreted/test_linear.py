"""The matrix product in the interpreter: right against float64, and a row's bits its own whatever the tile."""

import pytest
import torch

from kernels.cuda.linear import linear, linear_part
from kernels.cuda.tiles import Order, Plan, Tile
from kernels.cuda.weights import Weight, pack
from kernels.stored_tensor import StoredTensor
from tests.kernels.cuda.stored_matrices import stored_matrix

SERIAL = Tile(Order(depth=64, splits=3), outputs=64, rows=16, spread=False, num_warps=4, num_stages=3)


def _inputs(rows: int, width: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows)).bfloat16()


def _product(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.full((x.shape[0], weight.num_outputs), torch.nan)
    linear(x, weight, out, bias)
    return out


def _by_tile(x: torch.Tensor, weight: Weight, tile: Tile) -> torch.Tensor:
    return _product(x, weight.with_plans([Plan((tile,))] * len(weight.parts)))


def _is_close(out: torch.Tensor, x: torch.Tensor, stored: StoredTensor, bias: torch.Tensor) -> bool:
    """Within what float32 sums may lose: 2⁻²⁴ of the sum of magnitudes for each of a few additions in a row."""
    numbers = torch.from_numpy(stored.float32()).bfloat16().double()
    exact = x.double() @ numbers.T + bias.double()
    magnitudes = x.double().abs() @ numbers.T.abs() + bias.double().abs()
    return bool(((out.double() - exact).abs() <= 64 * 2.0**-24 * magnitudes).all())


@pytest.mark.parametrize(("format", "num_inputs"), [("BF16", 100), ("Q8_0", 160), ("Q4_1", 128), ("Q6_K", 256)])
def test_products_are_what_float64_says(format: str, num_inputs: int) -> None:
    stored = stored_matrix(format, 70, num_inputs)
    x, bias = _inputs(5, num_inputs), torch.linspace(-1, 1, 70)
    assert _is_close(_product(x, pack([stored], "cpu"), bias), x, stored, bias)


def test_many_splits_are_what_float64_says() -> None:
    stored = stored_matrix("Q4_0", 10, 1536)
    weight, x = pack([stored], "cpu"), _inputs(3, 1536)
    assert weight.parts[0].plan.order.splits == 3
    assert weight.parts[0].plan.tile(3).spread
    bias = torch.linspace(-1, 1, 10)
    assert _is_close(_product(x, weight, bias), x, stored, bias)


def test_a_row_alone_has_the_bits_it_has_in_company() -> None:
    weight, x = pack([stored_matrix("Q4_1", 70, 320)], "cpu"), _inputs(37, 320)
    together = _by_tile(x, weight, SERIAL)
    for row in (0, 15, 16, 36):
        assert torch.equal(_by_tile(x[row : row + 1].clone(), weight, SERIAL)[0], together[row])
    turned = torch.arange(36, -1, -1)
    assert torch.equal(_by_tile(x[turned].contiguous(), weight, SERIAL), together[turned])


@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 1, 70)])
def test_how_the_work_is_cut_changes_no_bit(bias: torch.Tensor | None) -> None:
    weight, x = pack([stored_matrix("Q4_1", 70, 320)], "cpu"), _inputs(20, 320)
    (part,) = weight.parts
    results = []
    for tile in (SERIAL, SERIAL._replace(spread=True), SERIAL._replace(rows=64), SERIAL._replace(outputs=128)):
        out = torch.full((20, 70), torch.nan)
        linear_part(x, part, tile, out, bias)
        results.append(out)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("order", [Order(128, 3), Order(64, 1)])
def test_another_order_has_other_bits(order: Order) -> None:
    """So the equalities above mean something."""
    weight, x = pack([stored_matrix("Q4_1", 70, 320)], "cpu"), _inputs(20, 320)
    assert not torch.equal(_by_tile(x, weight, SERIAL._replace(order=order)), _by_tile(x, weight, SERIAL))


def test_a_plan_has_one_order() -> None:
    with pytest.raises(AssertionError, match="order"):
        Plan((SERIAL, SERIAL._replace(order=Order(64, 1))), (16,))


def test_a_fused_weight_gives_what_its_matrices_give() -> None:
    stored = [stored_matrix("Q4_K", 48, 256, seed=1), stored_matrix("Q6_K", 16, 256, seed=2)]
    x = _inputs(3, 256)
    apart = torch.cat([_by_tile(x, pack([matrix], "cpu"), SERIAL) for matrix in stored], dim=1)
    assert torch.equal(_by_tile(x, pack(stored, "cpu"), SERIAL), apart)


def test_splits_can_be_spread_again_and_again() -> None:
    """What counts them is as it was."""
    weight, x = pack([stored_matrix("Q4_1", 10, 320)], "cpu"), _inputs(3, 320)
    spread = SERIAL._replace(spread=True)
    assert torch.equal(_by_tile(x, weight, spread), _by_tile(x, weight, spread))


def test_no_row_but_the_given_is_written() -> None:
    weight, x = pack([stored_matrix("BF16", 70, 64)], "cpu"), _inputs(3, 64)
    out = torch.full((5, 70), 7.0)
    linear(x, weight, out[:3])
    assert torch.equal(out[3:], torch.full((2, 70), 7.0))
