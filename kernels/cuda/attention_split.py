"""The arithmetic of attention: one split of a tile from nothing, and the next split merged into the running results.

Device functions for `attention.py` and `attention_merge.py`: whichever of them merges, it is by the same operations.
Exponentials are of base 2, so a score's scale has log2(e) in it. They must not know items, plans or layers.

Source: Milakov and Gimelshein, online softmax, 2018.
"""

import triton
import triton.language as tl

from kernels.cuda.kv_number import read_number

NOTHING = tl.constexpr(-1.0e30)  # the maximum of no scores: finite, so that its difference to itself is 0


@triton.jit
def attend_split(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    table: tl.tensor,
    split: tl.tensor,
    first_position: tl.tensor,
    of_group: tl.tensor,
    end: tl.tensor,
    kv_head: tl.tensor,
    scale: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
    DIM_TILE: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT_KEYS: tl.constexpr,
) -> tl.tensor:
    """One split from nothing: maxima and sums [ROWS], weighted values [ROWS, DIM_TILE].

    end   one past the last real query's position: keys from there on are not read
    """
    PIECES: tl.constexpr = SPLIT_KEYS // KEYS
    columns = tl.arange(0, DIM_TILE)[None, :]
    positions = (first_position + of_group)[:, None]
    highest = tl.full((ROWS,), NOTHING, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, DIM_TILE), tl.float32)
    first_piece = split * PIECES
    end_piece = tl.minimum(first_piece + PIECES, first_position // KEYS + 1)  # a group lies within one piece
    if WINDOW > 0:
        first_piece = tl.maximum(first_piece, tl.maximum(first_position - (WINDOW - 1), 0) // KEYS)
    for piece in range(first_piece, end_piece):
        slots = piece * KEYS + tl.arange(0, KEYS)
        is_written = slots < end
        block = tl.load(table + slots // BLOCK_SIZE, mask=is_written, other=0).to(tl.int64)
        lines = (block * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + slots % BLOCK_SIZE
        places = lines[:, None] * HEAD_DIM + columns
        inside = is_written[:, None] & (columns < HEAD_DIM)
        k = read_number(tl.load(keys + places, mask=inside, other=0.0))
        scores = tl.dot(q, tl.trans(k)) * scale
        is_seen = slots[None, :] <= positions
        if WINDOW > 0:
            is_seen = is_seen & (slots[None, :] > positions - WINDOW)
        scores = tl.where(is_seen, scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_highest[:, None])
        shrink = tl.exp2(highest - new_highest)
        total = total * shrink + tl.sum(weights, axis=1)
        v = read_number(tl.load(values + places, mask=inside, other=0.0))
        mixed = tl.dot(weights.to(tl.bfloat16), v, mixed * shrink[:, None])
        highest = new_highest
    return highest, total, mixed


@triton.jit
def merged(
    highest: tl.tensor,
    total: tl.tensor,
    mixed: tl.tensor,
    split_highest: tl.tensor,
    split_total: tl.tensor,
    split_mixed: tl.tensor,
) -> tl.tensor:
    """The next split merged into the running results; a split without keys changes nothing."""
    new_highest = tl.maximum(highest, split_highest)
    shrink, split_shrink = tl.exp2(highest - new_highest), tl.exp2(split_highest - new_highest)
    new_total = total * shrink + split_total * split_shrink
    return new_highest, new_total, mixed * shrink[:, None] + split_mixed * split_shrink[:, None]
