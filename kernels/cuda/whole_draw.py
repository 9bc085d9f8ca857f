"""A token drawn from all tokens of a row, with how far the draw was from another one.

The meaning is `reference_sampling`'s: weights relative to the likeliest token's, added up in ascending order of id, and
the first place looked for where the sum passes the row's uniform number. The reference adds in another order, so both
sums are some units in the last place apart; the device says how near the nearest other token was, and only a draw that
no such difference can turn is taken (`candidate_draws.py`). All is float64.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch, power_of_two
from kernels.cuda.row_flags import IS_WHOLE, row_logits

CHUNK = 2048  # logits that one program reads
_NEAR = tl.constexpr(2.0**-40)  # relative: a weight so near to the smallest kept may be on either side of it


def draw_whole(
    logits: torch.Tensor,
    changed: torch.Tensor,
    flags: torch.Tensor,
    highest: torch.Tensor,
    numbers: torch.Tensor,
    token_id: torch.Tensor,
    raw: torch.Tensor,
    total: torch.Tensor,
    margin: torch.Tensor,
) -> None:
    """Of the rows that have WHOLE.

    logits, changed, flags   as in `top_k.top_k`
    highest    float32 [rows], rows may lie further apart: the highest logit after changes
    numbers    float64 [rows, 4]: temperature (above 0), smallest weight kept, uniform number in [0, 1), another
    token_id   int32 [rows]
    raw        float32 [rows]: of `token_id` in `logits`
    total      float64 [rows]: sum of the weights kept; NaN where a weight is too near to the smallest
    margin     float64 [rows]: share of the total between the draw and the nearest other token; NaN where `total` is
    """
    rows, vocab_size = logits.shape
    chunks = triton.cdiv(vocab_size, CHUNK)
    sums = torch.empty(rows, chunks, dtype=torch.float64, device=logits.device)
    constants = {"VOCAB_SIZE": vocab_size, "CHUNKS": chunks, "CHUNK": CHUNK, "STRIDE": highest.stride(0)}
    launch(_sums, (chunks, rows), logits, changed, flags, highest, numbers, sums, **constants)
    launch(
        _draw,
        (rows,),
        *(logits, changed, flags, highest, numbers, sums, token_id, raw, total, margin),
        **constants,
        BLOCK=power_of_two(chunks),
    )


@triton.jit
def _weights(
    logits: tl.tensor,
    changed: tl.tensor,
    flag: tl.tensor,
    highest: tl.tensor,
    numbers: tl.tensor,
    row: tl.tensor,
    ids: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
) -> tl.tensor:
    """0 for a token that is not kept; NaN for one that may be or not."""
    x = row_logits(logits, changed, flag, row, ids, VOCAB_SIZE).to(tl.float64)
    temperature = tl.load(numbers + row * 4)
    smallest = tl.load(numbers + row * 4 + 1)
    weights = tl.exp((x - tl.load(highest + row * STRIDE).to(tl.float64)) / temperature)
    is_near = tl.abs(weights - smallest) <= smallest * _NEAR
    return tl.where(is_near, float("nan"), tl.where(weights >= smallest, weights, 0.0))


@triton.jit
def _sums(
    logits: tl.tensor,
    changed: tl.tensor,
    flags: tl.tensor,
    highest: tl.tensor,
    numbers: tl.tensor,
    sums: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    STRIDE: tl.constexpr,
) -> None:
    row = tl.program_id(1).to(tl.int64)
    flag = tl.load(flags + row)
    if (flag & IS_WHOLE) != 0:
        ids = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
        weights = _weights(logits, changed, flag, highest, numbers, row, ids, VOCAB_SIZE, STRIDE)
        tl.store(sums + row * CHUNKS + tl.program_id(0), tl.sum(weights, axis=0))


@triton.jit
def _draw(
    logits: tl.tensor,
    changed: tl.tensor,
    flags: tl.tensor,
    highest: tl.tensor,
    numbers: tl.tensor,
    sums: tl.tensor,
    token_id: tl.tensor,
    raw: tl.tensor,
    total: tl.tensor,
    margin: tl.tensor,
    VOCAB_SIZE: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    flag = tl.load(flags + row)
    if (flag & IS_WHOLE) != 0:
        chunks = tl.arange(0, BLOCK)
        of_chunks = tl.load(sums + row * CHUNKS + chunks, mask=chunks < CHUNKS, other=0.0)
        everything = tl.sum(of_chunks, axis=0)
        target = tl.load(numbers + row * 4 + 2) * everything
        passed = (tl.cumsum(of_chunks, axis=0) <= target) & (chunks < CHUNKS)
        chunk = tl.minimum(tl.sum(passed.to(tl.int32), axis=0), CHUNKS - 1)
        before = tl.sum(tl.where(chunks < chunk, of_chunks, 0.0), axis=0)
        places = tl.arange(0, CHUNK)
        ids = chunk * CHUNK + places
        weights = _weights(logits, changed, flag, highest, numbers, row, ids, VOCAB_SIZE, STRIDE)
        upto = before + tl.cumsum(weights, axis=0)
        place = tl.minimum(tl.sum((upto <= target).to(tl.int32), axis=0), CHUNK - 1)
        begin = tl.max(tl.where(places < place, upto, before), axis=0)
        end = tl.sum(tl.where(places == place, upto, 0.0), axis=0)
        drawn = tl.minimum(chunk * CHUNK + place, VOCAB_SIZE - 1)
        tl.store(token_id + row, drawn)
        tl.store(raw + row, tl.load(logits + row * VOCAB_SIZE + drawn))
        tl.store(total + row, everything)
        nearest = tl.minimum(target - begin, end - target) / everything
        tl.store(margin + row, tl.where(everything == everything, nearest, float("nan")))


def _variants(vocab_size: int) -> tuple[Variant, Variant]:
    chunks = triton.cdiv(vocab_size, CHUNK)
    constants = {"VOCAB_SIZE": vocab_size, "CHUNKS": chunks, "CHUNK": CHUNK, "STRIDE": 128}
    read = {"logits": "*fp32", "changed": "*fp32", "flags": "*i32", "highest": "*fp32", "numbers": "*fp64"}
    left = {"token_id": "*i32", "raw": "*fp32", "total": "*fp64", "margin": "*fp64"}
    return (
        Variant(f"weights of {vocab_size} logits", _sums, {**read, "sums": "*fp64"}, constants),
        Variant(
            f"draw from {vocab_size} logits",
            _draw,
            {**read, "sums": "*fp64", **left},
            {**constants, "BLOCK": power_of_two(chunks)},
        ),
    )


VARIANTS = _variants(128256)
