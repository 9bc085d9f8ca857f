"""Matrix product with a packed weight: one family of kernels for every format and every number of rows.

out[row, output] = Σ over inputs of bfloat16(weight[output, input]) × x[row, input]  (+ bias), accumulated in float32 in
the one order that `tiles.py` describes: pieces ascending, runs of pieces ascending, the bias last. A row's bits do not
follow its place, its company, nor whether runs are spread over programs. Products of bfloat16 are exact in float32.

Where splits are spread, each program leaves its total in memory and is counted; the last to come adds all of a tile's
totals in ascending order. The counter decides who adds, never in which order. A merge in a launch of its own would be a
third of all launches of a small model's step.

Reference: torch.nn.functional.linear over `StoredTensor.float32`.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import launch
from kernels.cuda.tiles import Shape, Tile
from kernels.cuda.weight_tile import float_tile, plane_arguments, shape_constants, stored_tile
from kernels.cuda.weights import Part, Weight

MAX_TILES = 1 << 16  # of one product whose splits are spread


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
    tiles = triton.cdiv(shape.num_outputs, tile.outputs) * triton.cdiv(num_rows, tile.rows)
    splits = tile.order.splits if tile.spread else 1
    totals, arrived = None, None
    if splits > 1:
        assert tiles <= MAX_TILES, f"{num_rows} rows are too many to spread their splits"
        totals = torch.empty(splits, num_rows, shape.num_outputs, device=x.device)
        arrived = _arrived(x.device)
    launch(
        _linear,
        (tiles, splits),
        *(x, *plane_arguments(part), bias, out, totals, arrived, num_rows),
        **linear_constants(shape, tile, part.first_output, out.shape[1]),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )


@cache
def _arrived(device: torch.device) -> torch.Tensor:
    """int32 [MAX_TILES]: how many splits of a tile are done; zeros before and after each product."""
    return torch.zeros(MAX_TILES, dtype=torch.int32, device=device)


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


@triton.jit(do_not_specialize=["num_rows"])
def _linear(
    x: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    minimums: tl.tensor,
    super_scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    totals: tl.tensor,
    arrived: tl.tensor,
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
    is_last = True
    if SPREAD:
        of_split = rows.to(tl.int64)[None, :] * NUM_OUTPUTS + outputs[:, None]
        split_size = num_rows.to(tl.int64) * NUM_OUTPUTS
        tl.store(totals + first_split * split_size + of_split, total, mask=inside)
        tl.debug_barrier()  # all of the program's numbers are written before it is counted
        is_last = tl.atomic_add(arrived + tl.program_id(0), 1, sem="acq_rel") == SPLITS - 1
        if is_last:  # whichever it is, it adds from the first on, as one program does in registers
            total = tl.zeros((OUTPUTS, ROWS), dtype=tl.float32)
            for split in range(SPLITS):
                place = totals + split * split_size + of_split
                total += tl.load(place, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(arrived + tl.program_id(0), 0)
    if is_last:
        if bias is not None:
            total += tl.load(bias + FIRST_OUTPUT + outputs, mask=outputs < NUM_OUTPUTS, other=0.0)[:, None]
        place = out + rows.to(tl.int64)[None, :] * OUT_WIDTH + FIRST_OUTPUT + outputs[:, None]
        tl.store(place, total, mask=inside)
