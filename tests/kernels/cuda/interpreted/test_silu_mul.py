"""The gated activation in the interpreter: right against float64, and each element its own."""

import pytest
import torch

from kernels.cuda.silu_mul import silu_mul

WIDTH = 1024 + 96  # the last piece of columns is not whole


def _gate_up(rows: int) -> torch.Tensor:
    return torch.randn(rows, 2 * WIDTH, generator=torch.Generator().manual_seed(1)) * 4


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_activations_are_what_float64_says(activation: str) -> None:
    gate_up, out = _gate_up(3), torch.empty(3, WIDTH)
    silu_mul(gate_up, out, activation)
    gate, up = gate_up.double().chunk(2, dim=-1)
    functions = {
        "silu": torch.nn.functional.silu,
        "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    }
    assert torch.allclose(out.double(), functions[activation](gate) * up, rtol=2e-6, atol=1e-7)


def test_a_row_alone_has_the_bits_it_has_in_company() -> None:
    gate_up, together = _gate_up(4), torch.empty(4, WIDTH, dtype=torch.bfloat16)
    silu_mul(gate_up, together)
    for row in range(4):
        alone = torch.empty(1, WIDTH, dtype=torch.bfloat16)
        silu_mul(gate_up[row : row + 1].clone(), alone)
        assert torch.equal(alone[0], together[row])


def test_large_gates_overflow_to_nothing_but_themselves() -> None:
    gate_up, out = torch.zeros(1, 2 * WIDTH), torch.empty(1, WIDTH)
    gate_up[0, :2] = torch.tensor([-200.0, 200.0])
    gate_up[0, WIDTH : WIDTH + 2] = 1.0
    silu_mul(gate_up, out)
    assert out[0, :3].tolist() == [0.0, 200.0, 0.0]
