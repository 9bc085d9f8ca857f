"""Partial results of attention merged, for rows whose splits were spread over programs: in ascending order.

A program takes a few heads of one row. It does what a program does that keeps its splits to itself, with the same
operations (`attention_split.merged`) on the same numbers, which went through memory as float32: no bit differs.
It must not know keys, values or scores.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.attention_plan import MERGE_FIELDS, Plan
from kernels.cuda.attention_split import NOTHING, merged
from kernels.cuda.launch import Variant, launch, power_of_two

_HEADS = 4  # of one program


def merge(plan: Plan, out: torch.Tensor) -> None:
    """Write the rows that the plan merges into `out`, bfloat16 or float32 [rows, heads × head dim]."""
    _, num_heads, head_dim = plan.mixed.shape
    launch(
        _merge,
        (plan.num_programs,),
        *(out, plan.counts, plan.merges, plan.mixed, plan.highest, plan.totals),
        **_constants(num_heads, head_dim),
    )


def _constants(num_heads: int, head_dim: int) -> dict[str, int]:
    return {
        "NUM_HEADS": num_heads,
        "HEAD_DIM": head_dim,
        "HEADS": _HEADS,
        "DIM_TILE": power_of_two(head_dim),
        "MERGE_FIELDS": MERGE_FIELDS,
    }


@triton.jit
def _merge(
    out: tl.tensor,
    counts: tl.tensor,
    merges: tl.tensor,
    partial_mixed: tl.tensor,
    partial_highest: tl.tensor,
    partial_totals: tl.tensor,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEADS: tl.constexpr,
    DIM_TILE: tl.constexpr,
    MERGE_FIELDS: tl.constexpr,
) -> None:
    PIECES: tl.constexpr = (NUM_HEADS + HEADS - 1) // HEADS
    columns = tl.arange(0, DIM_TILE)[None, :]
    for work in range(tl.program_id(0), tl.load(counts + 1) * PIECES, tl.num_programs(0)):
        entry = merges + work // PIECES * MERGE_FIELDS
        row, first, step, count = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2), tl.load(entry + 3)
        heads = work % PIECES * HEADS + tl.arange(0, HEADS)
        is_head = heads < NUM_HEADS
        inside = is_head[:, None] & (columns < HEAD_DIM)
        highest = tl.full((HEADS,), NOTHING, tl.float32)
        total = tl.zeros((HEADS,), tl.float32)
        mixed = tl.zeros((HEADS, DIM_TILE), tl.float32)
        for index in range(count):
            places = (first + index * step).to(tl.int64) * NUM_HEADS + heads
            split_highest = tl.load(partial_highest + places, mask=is_head, other=NOTHING)
            split_total = tl.load(partial_totals + places, mask=is_head, other=0.0)
            split_mixed = tl.load(partial_mixed + places[:, None] * HEAD_DIM + columns, mask=inside, other=0.0)
            highest, total, mixed = merged(highest, total, mixed, split_highest, split_total, split_mixed)
        result = tl.div_rn(mixed, total[:, None])
        place = row.to(tl.int64) * (NUM_HEADS * HEAD_DIM) + heads[:, None] * HEAD_DIM + columns
        tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


PARTIALS = {"partial_mixed": "*fp32", "partial_highest": "*fp32", "partial_totals": "*fp32"}
VARIANTS = (
    Variant(
        "merge of 32 heads of 128",
        _merge,
        {"out": "*bf16", "counts": "*i32", "merges": "*i32", **PARTIALS},
        _constants(32, 128),
    ),
)
