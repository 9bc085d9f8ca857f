"""RMSNorm in the interpreter: right against float64, and a row's bits its own."""

import pytest
import torch

from kernels.cuda.rms_norm import add_rms_norm, rms_norm

EPSILON = 1e-5


def _rows(seed: int, rows: int, width: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("width", [64, 80, 576])
def test_rows_are_normed_as_float64_says(width: int) -> None:
    hidden, weight = _rows(1, 5, width), _rows(2, 1, width)[0]
    out = torch.empty(5, width)
    rms_norm(hidden, weight, EPSILON, out)
    exact = hidden.double() / (hidden.double().square().mean(-1, keepdim=True) + EPSILON).sqrt() * weight.double()
    assert torch.allclose(out.double(), exact, rtol=1e-6, atol=1e-12)
    rounded = torch.empty(5, width, dtype=torch.bfloat16)
    rms_norm(hidden, weight, EPSILON, rounded)
    assert torch.equal(rounded, out.bfloat16())  # rounded once, to nearest


def test_what_is_added_first_stays_in_the_residual_stream() -> None:
    hidden, delta, weight = _rows(1, 5, 80), _rows(2, 5, 80), _rows(3, 1, 80)[0]
    added, out, plain = hidden.clone(), torch.empty(5, 80), torch.empty(5, 80)
    add_rms_norm(added, delta, weight, EPSILON, out)
    assert torch.equal(added, hidden + delta)
    rms_norm(added, weight, EPSILON, plain)
    assert torch.equal(out, plain)


def test_what_is_normed_before_it_is_added_is_normed_as_any_row_is() -> None:
    hidden, delta, weight, post_norm = (_rows(seed, 5, 80) for seed in (1, 2, 3, 4))
    added, out, normed, plain = hidden.clone(), *(torch.empty(5, 80) for _ in range(3))
    add_rms_norm(added, delta, weight[0], EPSILON, out, post_norm[0])
    rms_norm(delta, post_norm[0], EPSILON, normed)
    assert torch.equal(added, hidden + normed)
    rms_norm(added, weight[0], EPSILON, plain)
    assert torch.equal(out, plain)


def test_a_row_alone_has_the_bits_it_has_in_company() -> None:
    hidden, weight = _rows(1, 9, 576), _rows(2, 1, 576)[0]
    together = torch.empty(9, 576)
    rms_norm(hidden, weight, EPSILON, together)
    for row in range(9):
        alone = torch.empty(1, 576)
        rms_norm(hidden[row : row + 1].clone(), weight, EPSILON, alone)
        assert torch.equal(alone[0], together[row])


def test_rows_of_zeros_are_harmless() -> None:
    out = torch.full((3, 64), torch.nan)
    rms_norm(torch.zeros(3, 64), torch.ones(64), EPSILON, out)
    assert torch.equal(out, torch.zeros(3, 64))
