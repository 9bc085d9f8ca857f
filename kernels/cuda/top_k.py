"""The likeliest tokens of each row, highest first, ties by the lowest id.

A logit and its id make one 64-bit number that is greater the likelier the token and, among equals, the lower the id.
All are different, so the k greatest are found by taking the greatest k times: first of each chunk, then of what the
chunks have found. Integers alone: no order of operations can change the result.

Reference: `reference_sampling._likeliest`.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch, power_of_two

CHUNK = 4096  # logits that one program reads
MAX_K = 64  # each takes a pass over the chunk in registers
_LOWEST = tl.constexpr(-(1 << 63))


def top_k(logits: torch.Tensor, values: torch.Tensor, ids: torch.Tensor) -> None:
    """
    logits   float32 [rows, vocabulary], contiguous; not a number counts as higher than all or lower than all
    values   float32 [rows, k], 1 ≤ k ≤ MAX_K and at most the vocabulary; no value is -0
    ids      int32 [rows, k]
    """
    (rows, vocab_size), k = logits.shape, values.shape[1]
    assert 1 <= k <= min(MAX_K, vocab_size), f"{k} of {vocab_size} tokens were asked for, at most {MAX_K} can be"
    chunks = triton.cdiv(vocab_size, CHUNK)
    found = torch.empty(rows, chunks, k, dtype=torch.int64, device=logits.device)
    launch(_of_chunks, (chunks, rows), logits, found, VOCAB_SIZE=vocab_size, CHUNK=CHUNK, K=k)
    constants = {"FOUND": chunks * k, "BLOCK": power_of_two(chunks * k), "K": k}
    launch(_of_rows, (rows,), found, values, ids, **constants)


@triton.jit
def _of_chunks(
    logits: tl.tensor,
    found: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    K: tl.constexpr,
) -> None:
    """found [rows, chunks, K]: the greatest numbers of a chunk."""
    ids = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    row = tl.program_id(1)
    x = tl.load(logits + row.to(tl.int64) * VOCAB_SIZE + ids, mask=ids < VOCAB_SIZE, other=0.0)
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)  # -0 equals 0
    numbers = (_ordered(bits).to(tl.int64) << 32) | (0x7FFFFFFF - ids).to(tl.int64)
    numbers = tl.where(ids < VOCAB_SIZE, numbers, _LOWEST)
    at = found + (row * tl.num_programs(0) + tl.program_id(0)) * K
    for place in range(K):
        greatest = tl.max(numbers, axis=0)
        tl.store(at + place, greatest)
        numbers = tl.where(numbers == greatest, _LOWEST, numbers)


@triton.jit
def _of_rows(
    found: tl.tensor,
    values: tl.tensor,
    ids: tl.tensor,
    FOUND: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    numbers = tl.load(found + row * FOUND + places, mask=places < FOUND, other=_LOWEST)
    for place in range(K):
        greatest = tl.max(numbers, axis=0)
        bits = _ordered((greatest >> 32).to(tl.int32))
        tl.store(values + row * K + place, bits.to(tl.float32, bitcast=True))
        tl.store(ids + row * K + place, 0x7FFFFFFF - (greatest & 0xFFFFFFFF).to(tl.int32))
        numbers = tl.where(numbers == greatest, _LOWEST, numbers)


@triton.jit
def _ordered(bits: tl.tensor) -> tl.tensor:
    """A float's bits as an integer that grows with it; and back again."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _variants(vocab_size: int, k: int) -> tuple[Variant, Variant]:
    found = triton.cdiv(vocab_size, CHUNK) * k
    return (
        Variant(
            f"top {k} of {vocab_size} logits",
            _of_chunks,
            {"logits": "*fp32", "found": "*i64"},
            {"VOCAB_SIZE": vocab_size, "CHUNK": CHUNK, "K": k},
        ),
        Variant(
            f"top {k} of {found} found",
            _of_rows,
            {"found": "*i64", "values": "*fp32", "ids": "*i32"},
            {"FOUND": found, "BLOCK": power_of_two(found), "K": k},
        ),
    )


VARIANTS = _variants(128256, 20)
