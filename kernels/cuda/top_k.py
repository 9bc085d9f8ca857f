"""The likeliest tokens of each row that asks for them, highest first, ties by the lowest id.

A logit and its id make one 64-bit number that is greater the likelier the token and, among equals, the lower the id.
All are different, so the k greatest are found by taking the greatest k times: first of each chunk, then of what the
chunks have found. Integers alone: no order of operations can change the result.

Reference: `reference_sampling._likeliest`.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch, power_of_two
from kernels.cuda.row_flags import CANDIDATES, row_logits

CHUNK = 4096  # logits that one program reads
MAX_K = 128  # each takes a pass over the chunk in registers
_LOWEST = tl.constexpr(-(1 << 63))


def top_k(logits: torch.Tensor, values: torch.Tensor, ids: torch.Tensor) -> None:
    """`flagged_top_k` of all rows and without changes."""
    flags = torch.full((len(logits),), CANDIDATES, dtype=torch.int32, device=logits.device)
    flagged_top_k(logits, logits, flags, CANDIDATES, values, ids, torch.empty_like(values))


def flagged_top_k(
    logits: torch.Tensor,
    changed: torch.Tensor,
    flags: torch.Tensor,
    wanted: int,
    values: torch.Tensor,
    ids: torch.Tensor,
    raw: torch.Tensor,
) -> None:
    """
    logits    float32 [rows, vocabulary], contiguous; not a number counts as higher than all or lower than all
    changed   the same after changes, read in the rows that have CHANGED; `logits` itself where no change counts
    flags     int32 [rows]: `row_flags.py`; rows without one of the bits `wanted` are passed over
    values    float32 [rows, k], 1 ≤ k ≤ MAX_K and at most the vocabulary; rows may lie further apart; no value is -0
    ids       int32 [rows, k], laid out alike
    raw       float32 [rows, k], laid out alike: of these ids in `logits`
    """
    (rows, vocab_size), k, stride = logits.shape, values.shape[1], values.stride(0)
    assert 1 <= k <= min(MAX_K, vocab_size), f"{k} of {vocab_size} tokens were asked for, at most {MAX_K} can be"
    assert ids.stride(0) == raw.stride(0) == stride, "values, ids and raw lie alike"
    chunks = triton.cdiv(vocab_size, CHUNK)
    found = torch.empty(rows, chunks, k, dtype=torch.int64, device=logits.device)
    constants = {"WANTED": wanted, "VOCAB_SIZE": vocab_size, "K": k}
    launch(_of_chunks, (chunks, rows), logits, changed, flags, found, **constants, CHUNK=CHUNK)
    block = power_of_two(chunks * k)
    constants |= {"FOUND": chunks * k, "BLOCK": block, "STRIDE": stride}
    launch(_of_rows, (rows,), logits, flags, found, values, ids, raw, **constants, num_warps=_warps(block))


@triton.jit
def _of_chunks(
    logits: tl.tensor,
    changed: tl.tensor,
    flags: tl.tensor,
    found: tl.tensor,
    WANTED: tl.constexpr,
    VOCAB_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    K: tl.constexpr,
) -> None:
    """found [rows, chunks, K]: the greatest numbers of a chunk."""
    row = tl.program_id(1)
    flag = tl.load(flags + row)
    if (flag & WANTED) != 0:
        ids = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
        x = row_logits(logits, changed, flag, row, ids, VOCAB_SIZE)
        bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)  # -0 equals 0
        numbers = (_ordered(bits).to(tl.int64) << 32) | (0x7FFFFFFF - ids).to(tl.int64)
        numbers = tl.where(ids < VOCAB_SIZE, numbers, _LOWEST)
        into = found + (row.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * K
        for place in range(K):
            greatest = tl.max(numbers, axis=0)
            tl.store(into + place, greatest)
            numbers = tl.where(numbers == greatest, _LOWEST, numbers)


@triton.jit
def _of_rows(
    logits: tl.tensor,
    flags: tl.tensor,
    found: tl.tensor,
    values: tl.tensor,
    ids: tl.tensor,
    raw: tl.tensor,
    WANTED: tl.constexpr,
    VOCAB_SIZE: tl.constexpr,
    FOUND: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIDE: tl.constexpr,
    K: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    if (tl.load(flags + row) & WANTED) != 0:
        places = tl.arange(0, BLOCK)
        numbers = tl.load(found + row * FOUND + places, mask=places < FOUND, other=_LOWEST)
        for place in range(K):
            greatest = tl.max(numbers, axis=0)
            bits = _ordered((greatest >> 32).to(tl.int32))
            token_id = 0x7FFFFFFF - (greatest & 0xFFFFFFFF).to(tl.int32)
            tl.store(values + row * STRIDE + place, bits.to(tl.float32, bitcast=True))
            tl.store(ids + row * STRIDE + place, token_id)
            tl.store(raw + row * STRIDE + place, tl.load(logits + row * VOCAB_SIZE + token_id))
            numbers = tl.where(numbers == greatest, _LOWEST, numbers)


@triton.jit
def _ordered(bits: tl.tensor) -> tl.tensor:
    """A float's bits as an integer that grows with it; and back again."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _warps(block: int) -> int:
    """So that a thread holds at most 32 numbers of 64 bits."""
    return max(1, min(16, block // 1024))


def _variants(vocab_size: int, k: int) -> tuple[Variant, Variant]:
    found = triton.cdiv(vocab_size, CHUNK) * k
    block = power_of_two(found)
    of_both = {"logits": "*fp32", "flags": "*i32", "found": "*i64"}
    constants = {"WANTED": CANDIDATES, "VOCAB_SIZE": vocab_size, "K": k}
    return (
        Variant(
            f"top {k} of {vocab_size} logits",
            _of_chunks,
            {**of_both, "changed": "*fp32"},
            {**constants, "CHUNK": CHUNK},
        ),
        Variant(
            f"top {k} of {found} found",
            _of_rows,
            {**of_both, "values": "*fp32", "ids": "*i32", "raw": "*fp32"},
            {**constants, "FOUND": found, "BLOCK": block, "STRIDE": MAX_K},
            num_warps=_warps(block),
        ),
    )


VARIANTS = (*_variants(128256, 32), *_variants(128256, MAX_K))
MORE_VARIANTS = _variants(262144, MAX_K)
