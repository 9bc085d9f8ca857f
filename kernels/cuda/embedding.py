"""Rows of the embedding, one per token id, out of the packed weight: what its file says, in float32.

A number is made by `weight_tile.float_tile`, as a matrix product makes it, and is not rounded: the residual stream is
float32. One program makes 256 columns of one row; nothing is summed.

Reference: `StoredTensor.float32`, row by row.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch
from kernels.cuda.planes import LAYOUTS
from kernels.cuda.tiles import Shape
from kernels.cuda.weight_tile import absent_planes, float_tile, plane_arguments, plane_types, shape_constants
from kernels.cuda.weights import Weight

_COLUMNS = 256  # of one program: a whole super group of the K formats


def gather(token_ids: torch.Tensor, weight: Weight, out: torch.Tensor, scale: float = 1.0) -> None:
    """out[row] = weight[token_ids[row]] × scale.

    token_ids   int32 [rows], each a row of the weight
    weight      of one part: packed from one StoredTensor
    out         float32 [rows, width]
    """
    (part,) = weight.parts
    launch(
        _gather,
        (token_ids.shape[0], triton.cdiv(weight.num_inputs, _COLUMNS)),
        *(token_ids, *plane_arguments(part), out, scale),
        COLUMNS=_COLUMNS,
        **shape_constants(part.shape),
        num_warps=1,
    )


@triton.jit
def _gather(
    token_ids: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    minimums: tl.tensor,
    super_scales: tl.tensor,
    out: tl.tensor,
    scale: tl.tensor,
    NUM_OUTPUTS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    SUPER_GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    first = tl.program_id(1) * COLUMNS
    outputs = tl.load(token_ids + row) + tl.arange(0, 1)
    numbers = float_tile(
        *(values, scales, minimums, super_scales, outputs, first),
        *(NUM_OUTPUTS, NUM_INPUTS, BITS, GROUP, SUPER_GROUP, OFFSET, HAS_MINIMUMS, 1, COLUMNS),
    )
    columns = first + tl.arange(0, COLUMNS)
    place = out + row.to(tl.int64) * NUM_INPUTS + columns[None, :]
    tl.store(place, numbers * scale, mask=columns[None, :] < NUM_INPUTS)


def _variant(format: str, width: int, vocabulary: int) -> Variant:
    planes = plane_types(LAYOUTS[format])
    return Variant(
        f"embedding of {width} in {format}",
        _gather,
        {"token_ids": "*i32", **planes, "out": "*fp32", "scale": "fp32"},
        {
            "COLUMNS": _COLUMNS,
            **shape_constants(Shape(LAYOUTS[format], vocabulary, width)),
            **absent_planes(LAYOUTS[format]),
        },
        num_warps=1,
    )


VARIANTS = (_variant("Q8_0", 576, 49152), _variant("Q4_K", 4096, 128256), _variant("BF16", 4096, 128256))
