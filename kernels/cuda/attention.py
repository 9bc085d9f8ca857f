"""Paged attention: the same kernel for decode and prefill, so that a query's bits are the same in both.

A program takes an item of the plan (`attention_plan.py`) and one kv head: a tile of rows, which are a group of queries
× the query heads of the kv head. A group's queries are fixed by position: its other rows, where a query is decoded
alone, are zeros. Whether the splits of a group go through one program or through many, each is computed from nothing,
KEYS keys at a time, and merged in ascending order by the same operations (`attention_split.py`). Keys after a query
weigh exactly nothing; what lies past the last is not read.

A long prefill is taken in tiles of WIDE_ROWS rows, which read each key half as often as TILE_ROWS do. Both are made of
the same instruction on tiles of 16 rows, and spread their warps over keys alone: so a row's sums are the same whatever
the tile, as the compiled code shows (`tests/kernels/cuda/test_compiled.py`) and `attention_tuning.py` asks the device.
64 rows are not on offer: on sm_90 they are another instruction, wgmma; with keys as the first operand, which would make
it wgmma for all, a split and the running results of 64 rows do not fit the registers (heads of 128; measured).

Scores and sums are float32, the weights of the values bfloat16, as the tensor cores take them. With a window a query
sees its last WINDOW keys, itself among them; pieces and splits of keys that no query of the group sees are passed over,
which changes no bit either.

Reference: `reference_attention.attend`. Source: Milakov and Gimelshein, online softmax, 2018; Kwon et al.,
PagedAttention, SOSP 2023; Dao et al., Flash-Decoding, 2023.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda.attention_merge import PARTIALS, merge
from kernels.cuda.attention_plan import ITEM_FIELDS, SPLIT_KEYS, TILE_ROWS, WIDE_ROWS, AttentionShape, Plan
from kernels.cuda.attention_split import NOTHING, attend_split, merged
from kernels.cuda.launch import Variant, launch, power_of_two

KEYS = 64  # of one product: more than a tile has rows, so that triton spreads the warps of all tiles over keys
_NUM_STAGES = 2
_LOG2_E = 1.4426950408889634


def attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    plan: Plan,
    out: torch.Tensor,
    scale: float = 0.0,
    window: int = 0,
) -> None:
    """Write softmax(q·kᵀ × scale)·v of each row that the plan names into `out`; other rows are left as they are.

    queries        bfloat16 [rows, heads, head dim]
    keys, values   one layer's memory [blocks, kv heads, block size, head dim], bfloat16 or the uint8 of e4m3, this
                   step's rows included
    out            bfloat16, or float32, [rows, heads × head dim]
    scale          0: 1 / √head dim
    window         keys that a query sees; 0: all up to itself
    """
    _, num_kv_heads, block_size, head_dim = keys.shape
    shape = AttentionShape(queries.shape[1], num_kv_heads, head_dim, block_size)
    partials = (plan.mixed, plan.highest, plan.totals)
    num_warps = _num_warps(shape, keys.dtype == torch.bfloat16)
    for rows in (TILE_ROWS, WIDE_ROWS)[: 1 + plan.has_wide]:
        launch(
            _attend,
            (plan.num_programs,),
            *(queries, keys, values, out, plan.counts, plan.items, plan.block_tables, *partials),
            *((scale or head_dim**-0.5) * _LOG2_E, plan.block_tables.shape[1]),
            **_constants(shape, window, rows),
            num_warps=num_warps,
            num_stages=_NUM_STAGES,
            max_registers=_max_registers(num_warps, rows),
        )
    merge(plan, out)


def _max_registers(num_warps: int, rows: int) -> int | None:
    """Left to itself the assembler takes fewer than it may, and spills (measured with triton 3.6)."""
    if num_warps == 4:
        return 168 if rows == TILE_ROWS else 255  # three programs a multiprocessor, or two
    return 216 if rows == TILE_ROWS else None


def _num_warps(shape: AttentionShape, is_bfloat16: bool) -> int:
    """By the model and the KV memory's type alone, for it decides bits. With fewer, registers spill (measured)."""
    return 4 if is_bfloat16 and shape.head_dim <= 128 else 8


def _constants(shape: AttentionShape, window: int, rows: int) -> dict[str, Any]:
    return {
        "NUM_HEADS": shape.num_heads,
        "NUM_KV_HEADS": shape.num_kv_heads,
        "HEAD_DIM": shape.head_dim,
        "BLOCK_SIZE": shape.block_size,
        "WINDOW": window,
        "ROWS": max(rows, shape.heads_tile),
        "IS_WIDE": rows > TILE_ROWS,
        "HEADS_TILE": shape.heads_tile,
        "DIM_TILE": power_of_two(shape.head_dim),
        "KEYS": KEYS,
        "SPLIT_KEYS": SPLIT_KEYS,
        "ITEM_FIELDS": ITEM_FIELDS,
    }


@triton.jit(do_not_specialize=["table_width"])
def _attend(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    out: tl.tensor,
    counts: tl.tensor,
    items: tl.tensor,
    block_tables: tl.tensor,
    partial_mixed: tl.tensor,
    partial_highest: tl.tensor,
    partial_totals: tl.tensor,
    scale: tl.tensor,
    table_width: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
    IS_WIDE: tl.constexpr,
    HEADS_TILE: tl.constexpr,
    DIM_TILE: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT_KEYS: tl.constexpr,
    ITEM_FIELDS: tl.constexpr,
) -> None:
    rows = tl.arange(0, ROWS)
    of_group, of_kv_head = rows // HEADS_TILE, rows % HEADS_TILE
    columns = tl.arange(0, DIM_TILE)[None, :]
    num_items = tl.load(counts)
    if IS_WIDE:  # they lie behind the others
        items += num_items * ITEM_FIELDS
        num_items = tl.load(counts + 2)
    for work in range(tl.program_id(0), num_items * NUM_KV_HEADS, tl.num_programs(0)):
        item = items + work // NUM_KV_HEADS * ITEM_FIELDS
        kv_head = work % NUM_KV_HEADS
        table = block_tables + tl.load(item).to(tl.int64) * table_width
        first_position, first_row = tl.load(item + 1), tl.load(item + 2)
        low, high = tl.load(item + 3), tl.load(item + 4)
        first_split, end_split, partial = tl.load(item + 5), tl.load(item + 6), tl.load(item + 7)
        if WINDOW > 0:
            first_split = tl.maximum(first_split, tl.maximum(first_position - (WINDOW - 1), 0) // SPLIT_KEYS)

        heads = kv_head * (NUM_HEADS // NUM_KV_HEADS) + of_kv_head
        is_real = (of_kv_head < NUM_HEADS // NUM_KV_HEADS) & (of_group >= low) & (of_group < high)
        inside = is_real[:, None] & (columns < HEAD_DIM)
        lines = (first_row + of_group).to(tl.int64) * NUM_HEADS + heads
        q = tl.load(queries + lines[:, None] * HEAD_DIM + columns, mask=inside, other=0.0)

        highest = tl.full((ROWS,), NOTHING, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        mixed = tl.zeros((ROWS, DIM_TILE), tl.float32)
        for split in range(first_split, end_split):
            of_split = attend_split(
                *(q, keys, values, table, split, first_position, of_group, first_position + high, kv_head, scale),
                *(NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE, WINDOW, ROWS, DIM_TILE, KEYS, SPLIT_KEYS),
            )
            highest, total, mixed = merged(highest, total, mixed, of_split[0], of_split[1], of_split[2])

        if partial < 0:
            result = tl.div_rn(mixed, total[:, None])
            tl.store(out + lines[:, None] * HEAD_DIM + columns, result.to(out.dtype.element_ty), mask=inside)
        else:
            places = (partial + of_group - low).to(tl.int64) * NUM_HEADS + heads
            tl.store(partial_highest + places, highest, mask=is_real)
            tl.store(partial_totals + places, total, mask=is_real)
            tl.store(partial_mixed + places[:, None] * HEAD_DIM + columns, mixed, mask=inside)


def _variant(shape: AttentionShape, kind: str, window: int = 0, rows: int = TILE_ROWS) -> Variant:
    num_warps = _num_warps(shape, kind == "bf16")
    signature = {"queries": "*bf16", "keys": f"*{kind}", "values": f"*{kind}", "out": "*bf16"}
    plan = {"counts": "*i32", "items": "*i32", "block_tables": "*i32", **PARTIALS}
    return Variant(
        f"attend {shape.num_heads}/{shape.num_kv_heads} heads of {shape.head_dim}, {kind}"
        + (f", window {window}" if window else "")
        + (f", {rows} rows" if rows > TILE_ROWS else ""),
        _attend,
        {**signature, **plan, "scale": "fp32", "table_width": "i32"},
        _constants(shape, window, rows),
        num_warps=num_warps,
        num_stages=_NUM_STAGES,
        max_registers=_max_registers(num_warps, rows),
    )


_SMALL, _LARGE = AttentionShape(9, 3, 64, 16), AttentionShape(32, 8, 128, 16)
VARIANTS = tuple(
    _variant(shape, kind, window, rows)
    for shape, kind, window in (
        (_SMALL, "bf16", 0),
        (_LARGE, "bf16", 0),
        (_LARGE, "u8", 0),
        (AttentionShape(4, 1, 256, 16), "bf16", 512),
    )
    for rows in (TILE_ROWS, WIDE_ROWS)
)
