"""Logits, and what a greedy draw needs of them, so that only a few numbers of a row leave the device.

A row is read in chunks of one fixed length, each by a program of its own; then one program per row puts the chunks
together. Sums are trees over lengths that the vocabulary fixes. Ties go to the lowest id, as in the reference.

Reference: `reference_sampling.draw_token`. The logarithms and exponentials are the device's own.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch, power_of_two
from kernels.cuda.linear import linear
from kernels.cuda.weights import Weight

CHUNK = 4096  # logits that one program reads
_NO_ID = tl.constexpr(0x7FFFFFFF)


def head(x: torch.Tensor, weight: Weight, logits: torch.Tensor) -> None:
    """logits = x · weightᵀ.

    x        bfloat16 [rows, hidden size], normed
    logits   float32 [rows, vocabulary]
    """
    linear(x, weight, logits)


def statistics(logits: torch.Tensor, best: torch.Tensor, highest: torch.Tensor, log_sum: torch.Tensor) -> None:
    """What there is to know of each row for its likeliest token.

    logits    float32 [rows, vocabulary], contiguous
    best      int32 [rows]: id of the highest logit, the lowest of several; within the vocabulary whatever the logits
    highest   float32 [rows]
    log_sum   float32 [rows]: log Σ exp(logit); NaN where a logit is infinite or not a number
    """
    rows, vocab_size = logits.shape
    chunks = triton.cdiv(vocab_size, CHUNK)
    of_chunks = torch.empty(3, rows, chunks, device=logits.device)
    constants = {"VOCAB_SIZE": vocab_size, "CHUNKS": chunks}
    launch(_chunk_statistics, (chunks, rows), logits, of_chunks, rows, **constants, CHUNK=CHUNK)
    launch(
        _row_statistics,
        (rows,),
        *(of_chunks, best, highest, log_sum, rows),
        **constants,
        BLOCK=power_of_two(chunks),
        num_warps=1,
    )


@triton.jit(do_not_specialize=["num_rows"])
def _chunk_statistics(
    logits: tl.tensor,
    of_chunks: tl.tensor,
    num_rows: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """of_chunks [3, rows, chunks]: the highest, the bits of its id, Σ exp(logit - highest)."""
    ids = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    row = tl.program_id(1)
    inside = ids < VOCAB_SIZE
    x = tl.load(logits + row.to(tl.int64) * VOCAB_SIZE + ids, mask=inside, other=float("-inf"))
    highest = tl.max(x, axis=0)
    best = tl.min(tl.where(inside & (x == highest), ids, _NO_ID), axis=0)
    is_finite = tl.abs(x) < float("inf")
    terms = tl.where(is_finite, tl.exp(x - highest), tl.where(inside, float("nan"), 0.0))
    at = of_chunks + row * CHUNKS + tl.program_id(0)
    plane = num_rows * CHUNKS
    tl.store(at, highest)
    tl.store(at + plane, best.to(tl.float32, bitcast=True))
    tl.store(at + 2 * plane, tl.sum(terms, axis=0))


@triton.jit(do_not_specialize=["num_rows"])
def _row_statistics(
    of_chunks: tl.tensor,
    best: tl.tensor,
    highest: tl.tensor,
    log_sum: tl.tensor,
    num_rows: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    chunks = tl.arange(0, BLOCK)
    inside = chunks < CHUNKS
    at = of_chunks + row * CHUNKS + chunks
    plane = num_rows * CHUNKS
    of_chunk = tl.load(at, mask=inside, other=float("-inf"))
    ids = tl.load(at + plane, mask=inside, other=0.0).to(tl.int32, bitcast=True)
    sums = tl.load(at + 2 * plane, mask=inside, other=0.0)
    of_row = tl.max(of_chunk, axis=0)
    lowest = tl.min(tl.where(inside & (of_chunk == of_row), ids, _NO_ID), axis=0)
    total = tl.sum(tl.where(inside, sums * tl.exp(of_chunk - of_row), 0.0), axis=0)
    tl.store(best + row, tl.minimum(lowest, VOCAB_SIZE - 1))
    tl.store(highest + row, of_row)
    tl.store(log_sum + row, of_row + tl.log(total))


def _variants(vocab_size: int) -> tuple[Variant, Variant]:
    chunks = triton.cdiv(vocab_size, CHUNK)
    constants = {"VOCAB_SIZE": vocab_size, "CHUNKS": chunks}
    signature = {"of_chunks": "*fp32", "num_rows": "i32"}
    of_row = {"best": "*i32", "highest": "*fp32", "log_sum": "*fp32"}
    first = {"logits": "*fp32", **signature}
    return (
        Variant(f"statistics of {vocab_size} logits", _chunk_statistics, first, {**constants, "CHUNK": CHUNK}),
        Variant(
            f"statistics of {chunks} chunks",
            _row_statistics,
            {**signature, **of_row},
            {**constants, "BLOCK": power_of_two(chunks)},
            num_warps=1,
        ),
    )


VARIANTS = _variants(128256)
