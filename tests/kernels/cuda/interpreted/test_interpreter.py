"""Triton's interpreter as we correct it: products, rounding, and rows that do not depend on their place."""

import numpy as np
import torch
import triton
import triton.language as tl

from kernels.cuda.interpreter import round_to_bfloat16
from kernels.cuda.launch import launch


@triton.jit
def _product(a: tl.tensor, b: tl.tensor, out: tl.tensor, N: tl.constexpr) -> None:
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    product = tl.dot(tl.load(a + rows * N + columns), tl.load(b + rows * N + columns))
    tl.store(out + rows * N + columns, product)


def _numbers(seed: int) -> torch.Tensor:
    return torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)).bfloat16()


def _multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(32, 32)
    launch(_product, (1,), a, b, out, N=32)
    return out


def test_products_of_bfloat16_are_products_of_numbers() -> None:
    a, b = _numbers(1), _numbers(2)
    assert torch.allclose(_multiplied(a, b).double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


def test_a_rows_place_in_the_tile_changes_no_bit() -> None:
    a, b = _numbers(1), _numbers(2)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(3))
    assert torch.equal(_multiplied(a[order].contiguous(), b), _multiplied(a, b)[order])


def test_numbers_are_rounded_to_bfloat16_as_torch_rounds_them() -> None:
    numbers = torch.randn(4096, generator=torch.Generator().manual_seed(1)) * 1e3
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1 + 2**-8, 1 + 3 * 2**-8, 1e-40])
    given = torch.cat((numbers, special))
    found = torch.from_numpy(round_to_bfloat16(given.numpy()).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(found.nan_to_num(7.0), given.bfloat16().nan_to_num(7.0))
