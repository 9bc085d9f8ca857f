"""RMSNorm of each row, plain or after adding what a layer gives to the residual stream.

One program is one row: it loads the row whole, so the sum of squares is one tree over a width that the model fixes.
The root and the division are IEEE's, rounded; the result is rounded to bfloat16 once, as input of a matrix product.
A model with post norms has what its layer gives normed first, by the same operations, in the same program.

Reference: `reference_layer.rms_norm`. Source: Zhang and Sennrich, RMSNorm, 2019.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch, power_of_two


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float, out: torch.Tensor) -> None:
    """out = hidden / √(mean(hidden²) + epsilon) × weight.

    hidden   float32 [rows, width]
    weight   float32 [width]
    out      bfloat16, or float32, [rows, width]
    """
    _start(hidden, hidden, weight, epsilon, out, None, has_delta=False)


def add_rms_norm(
    hidden: torch.Tensor,
    delta: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    out: torch.Tensor,
    post_norm: torch.Tensor | None = None,
) -> None:
    """hidden += delta, in place and in float32; then `rms_norm` of it.

    delta       float32 [rows, width]; left as it is
    post_norm   float32 [width]: weight of the norm that delta goes through before it is added; None: there is none
    """
    _start(hidden, delta, weight, epsilon, out, post_norm, has_delta=True)


def _start(
    hidden: torch.Tensor,
    delta: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    out: torch.Tensor,
    post_norm: torch.Tensor | None,
    *,
    has_delta: bool,
) -> None:
    rows, width = hidden.shape
    launch(
        _rms_norm,
        (rows,),
        *(hidden, delta, weight, post_norm, out, epsilon),
        WIDTH=width,
        BLOCK=power_of_two(width),
        HAS_DELTA=has_delta,
        num_warps=_num_warps(width),
    )


def _num_warps(width: int) -> int:
    """16 numbers a thread, within 1 … 8 warps: by the model's width alone, as the order of the sum follows it."""
    return min(8, max(1, power_of_two(width) // 512))


@triton.jit
def _rms_norm(
    hidden: tl.tensor,
    delta: tl.tensor,
    weight: tl.tensor,
    post_norm: tl.tensor,
    out: tl.tensor,
    epsilon: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_DELTA: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * WIDTH
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    x = tl.load(hidden + row + columns, mask=inside, other=0.0)
    if HAS_DELTA:
        given = tl.load(delta + row + columns, mask=inside, other=0.0)
        if post_norm is not None:
            given = _normed(given, post_norm, columns, epsilon, WIDTH)
        x += given
        tl.store(hidden + row + columns, x, mask=inside)
    normed = _normed(x, weight, columns, epsilon, WIDTH)
    tl.store(out + row + columns, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _normed(x: tl.tensor, weight: tl.tensor, columns: tl.tensor, epsilon: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """x, whose columns beyond WIDTH are zeros."""
    mean = tl.div_rn(tl.sum(x * x, axis=0), WIDTH * 1.0)
    normed = x * tl.div_rn(1.0, tl.sqrt_rn(mean + epsilon))
    return normed * tl.load(weight + columns, mask=columns < WIDTH, other=0.0)


def _variant(width: int, *, has_delta: bool = True, has_post_norm: bool = False) -> Variant:
    post_norm = {"post_norm": "*fp32"} if has_post_norm else {}
    return Variant(
        f"rms_norm of {width}{' after adding' * has_delta}{' what is normed' * has_post_norm}",
        _rms_norm,
        {"hidden": "*fp32", "delta": "*fp32", "weight": "*fp32", **post_norm, "out": "*bf16", "epsilon": "fp32"},
        {
            "WIDTH": width,
            "BLOCK": power_of_two(width),
            "HAS_DELTA": has_delta,
            **({} if has_post_norm else {"post_norm": None}),
        },
        num_warps=_num_warps(width),
    )


VARIANTS = (
    _variant(576, has_delta=False),
    _variant(4096),
    _variant(8192),
    _variant(5376, has_post_norm=True),
)
