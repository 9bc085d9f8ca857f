"""The gated activation of an MLP, element by element: activation(gate) × up.

Nothing is summed, so nothing can depend on other rows. The division is IEEE's, rounded; the exponential is the GPU's
own (exp2 after a multiplication). The result is rounded to bfloat16 once, as input of a matrix product.

Reference: `reference_layer.silu` and `gelu_tanh`. Source: Shazeer, GLU variants, 2020; Hendrycks and Gimpel, 2016.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch

_COLUMNS = 1024  # of one program
_GELU_CUBE = tl.constexpr(0.044715)
_SQRT_8_OVER_PI = tl.constexpr(1.5957691216057308)


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor, activation: str = "silu") -> None:
    """out = activation(gate_up[:, :width]) × gate_up[:, width:].

    gate_up      float32 [rows, 2 × width]
    out          bfloat16, or float32, [rows, width]
    activation   "silu", or "gelu_tanh": (1 + tanh(u)) / 2 is the sigmoid of 2u
    """
    rows, width = out.shape
    grid = (triton.cdiv(width, _COLUMNS), rows)
    launch(_silu_mul, grid, gate_up, out, WIDTH=width, COLUMNS=_COLUMNS, IS_GELU=activation == "gelu_tanh")


@triton.jit
def _silu_mul(
    gate_up: tl.tensor, out: tl.tensor, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, IS_GELU: tl.constexpr
) -> None:
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < WIDTH
    gate = tl.load(gate_up + row * (2 * WIDTH) + columns, mask=inside, other=0.0)
    up = tl.load(gate_up + row * (2 * WIDTH) + WIDTH + columns, mask=inside, other=0.0)
    if IS_GELU:
        exponent = (gate + _GELU_CUBE * (gate * gate * gate)) * _SQRT_8_OVER_PI
    else:
        exponent = gate
    activated = tl.div_rn(gate, 1.0 + tl.exp(-exponent))
    tl.store(out + row * WIDTH + columns, (activated * up).to(out.dtype.element_ty), mask=inside)


VARIANTS = tuple(
    Variant(
        f"{activation}_mul of {width}",
        _silu_mul,
        {"gate_up": "*fp32", "out": "*bf16"},
        {"WIDTH": width, "COLUMNS": _COLUMNS, "IS_GELU": activation == "gelu_tanh"},
    )
    for activation, width in (("silu", 14336), ("gelu_tanh", 6912))
)
