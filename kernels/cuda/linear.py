"""Matrix product with a packed weight: one family of kernels for every format and every number of rows.

out[row, output] = Σ over inputs of bfloat16(weight[output, input]) × x[row, input]  (+ bias), accumulated in float32 in
the one order that `tiles.py` describes: pieces ascending, runs of pieces ascending, the bias last. A row's bits do not
follow its place, its company, nor whether runs are spread over programs. Products of bfloat16 are exact in float32.

Reference: torch.nn.functional.linear over `StoredTensor.float32`.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import launch
from kernels.cuda.tiles import Shape, Tile
from kernels.cuda.weight_tile import float_tile, plane_arguments, shape_constants, stored_tile
from kernels.cuda.weights import Part, Weight

MERGED_AT_A_TIME = 1024  # outputs of one program of the merge


def linear(x: torch.Tensor, weight: Weight, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """out = x · weightᵀ + bias.

    x      bfloat16 [rows, inputs]
    out    float32 [rows, outputs]
    bias   float32 [outputs]
    Where splits are spread their totals take splits × rows × outputs × 4 bytes of torch's memory for the call.
    """
    for part in weight.parts:
        linear_part(x, part, part.plan.tile(x.shape[0]), out, bias)


def linear_part(x: torch.Tensor, part: Part, tile: Tile, out: torch.Tensor, bias: torch.Tensor | None) -> None:
    """One part's columns of `out` by the tile given. `autotune.py` tries tiles through it."""
    num_rows, shape = x.shape[0], part.shape
    spread = tile.spread and tile.order.splits > 1
    splits = tile.order.splits if spread else 1
    totals = torch.empty((splits, num_rows, shape.num_outputs), device=x.device) if spread else out
    grid = (triton.cdiv(shape.num_outputs, tile.outputs) * triton.cdiv(num_rows, tile.rows), splits)
    launch(
        _linear,
        grid,
        *(x, *plane_arguments(part), None if spread else bias, totals, num_rows),
        **linear_constants(shape, tile, part.first_output, out.shape[1]),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    if spread:
        merge_grid = (triton.cdiv(shape.num_outputs, MERGED_AT_A_TIME), num_rows)
        constants = merge_constants(shape, tile, part.first_output, out.shape[1])
        launch(_merge, merge_grid, totals, bias, out, num_rows, **constants)


def linear_constants(shape: Shape, tile: Tile, first_output: int, out_width: int) -> dict[str, Any]:
    """The constants that `_linear` is compiled with."""
    pieces = triton.cdiv(shape.num_inputs, tile.order.depth)
    return {
        **shape_constants(shape),
        "FIRST_OUTPUT": first_output,
        "OUT_WIDTH": out_width,
        "PIECES": pieces,
        "PIECES_A_SPLIT": triton.cdiv(pieces, tile.order.splits),
        "SPLITS": tile.order.splits,
        "SPREAD": tile.spread and tile.order.splits > 1,
        "OUTPUTS": tile.outputs,
        "ROWS": tile.rows,
        "DEPTH": tile.order.depth,
    }


def merge_constants(shape: Shape, tile: Tile, first_output: int, out_width: int) -> dict[str, Any]:
    """The constants that `_merge` is compiled with."""
    return {
        "NUM_OUTPUTS": shape.num_outputs,
        "FIRST_OUTPUT": first_output,
        "OUT_WIDTH": out_width,
        "SPLITS": tile.order.splits,
        "OUTPUTS": MERGED_AT_A_TIME,
    }


@triton.jit(do_not_specialize=["num_rows"])
def _linear(
    x: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    minimums: tl.tensor,
    super_scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    SUPER_GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    FIRST_OUTPUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    PIECES: tl.constexpr,
    PIECES_A_SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    SPREAD: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """Programs that follow one another take the same outputs and other rows: a weight is read from memory once."""
    row_tiles = tl.cdiv(num_rows, ROWS)
    outputs = tl.program_id(0) // row_tiles * OUTPUTS + tl.arange(0, OUTPUTS)
    rows = tl.program_id(0) % row_tiles * ROWS + tl.arange(0, ROWS)
    first_split = tl.program_id(1) if SPREAD else 0
    total = tl.zeros((OUTPUTS, ROWS), dtype=tl.float32)
    for split in range(first_split, first_split + 1 if SPREAD else SPLITS):
        run = tl.zeros((OUTPUTS, ROWS), dtype=tl.float32)
        for piece in range(split * PIECES_A_SPLIT, min((split + 1) * PIECES_A_SPLIT, PIECES)):
            first_input = piece * DEPTH
            if BITS == 16:
                weights = stored_tile(
                    values, outputs, first_input, NUM_OUTPUTS, NUM_INPUTS, BITS, OFFSET, OUTPUTS, DEPTH
                )
            else:
                weights = float_tile(
                    *(values, scales, minimums, super_scales, outputs, first_input),
                    *(NUM_OUTPUTS, NUM_INPUTS, BITS, GROUP, SUPER_GROUP, OFFSET, HAS_MINIMUMS, OUTPUTS, DEPTH),
                ).to(tl.bfloat16)
            inputs = first_input + tl.arange(0, DEPTH)
            inside = rows[None, :] < num_rows
            if NUM_INPUTS % DEPTH != 0:
                inside = inside & (inputs[:, None] < NUM_INPUTS)
            at = rows.to(tl.int64)[None, :] * NUM_INPUTS + inputs[:, None]
            run = tl.dot(weights, tl.load(x + at, mask=inside, other=0.0), run)
        total += run
    inside = (outputs[:, None] < NUM_OUTPUTS) & (rows[None, :] < num_rows)
    if SPREAD:
        at = (tl.program_id(1) * num_rows + rows).to(tl.int64)[None, :] * NUM_OUTPUTS + outputs[:, None]
    else:
        at = rows.to(tl.int64)[None, :] * OUT_WIDTH + FIRST_OUTPUT + outputs[:, None]
        if bias is not None:
            total += tl.load(bias + FIRST_OUTPUT + outputs, mask=outputs < NUM_OUTPUTS, other=0.0)[:, None]
    tl.store(out + at, total, mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def _merge(
    totals: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    NUM_OUTPUTS: tl.constexpr,
    FIRST_OUTPUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    SPLITS: tl.constexpr,
    OUTPUTS: tl.constexpr,
) -> None:
    """The totals [SPLITS, rows, NUM_OUTPUTS] of one row added up, from the first on, as `_linear` does in registers."""
    row = tl.program_id(1)
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    inside = outputs < NUM_OUTPUTS
    total = tl.zeros((OUTPUTS,), dtype=tl.float32)
    for split in range(SPLITS):
        at = (split * num_rows + row).to(tl.int64) * NUM_OUTPUTS + outputs
        total += tl.load(totals + at, mask=inside, other=0.0)
    if bias is not None:
        total += tl.load(bias + FIRST_OUTPUT + outputs, mask=inside, other=0.0)
    tl.store(out + row.to(tl.int64) * OUT_WIDTH + FIRST_OUTPUT + outputs, total, mask=inside)
