"""What is asked of a row of logits on the device beside its statistics: bits of one int32 a row.

A row without a bit is drawn greedily from its unchanged logits; the kernels of draws pass over it. And the one way in
which they read a row.
"""

import triton
import triton.language as tl

CANDIDATES = 1  # its likeliest tokens after all changes
CHANGED = 2  # its logits are changed before a token is drawn
WHOLE = 4  # a draw from all of its tokens, and the sum of their weights
TOP = 8  # the likeliest tokens of its unchanged logits, to be told

IS_CANDIDATES, IS_CHANGED, IS_WHOLE = tl.constexpr(CANDIDATES), tl.constexpr(CHANGED), tl.constexpr(WHOLE)


@triton.jit
def row_logits(
    logits: tl.tensor, changed: tl.tensor, flag: tl.tensor, row: tl.tensor, ids: tl.tensor, VOCAB_SIZE: tl.constexpr
) -> tl.tensor:
    """float32 of `ids`, from `changed` where the row has CHANGED; -inf outside the vocabulary. Only one is read.

    Masks are compared with 0 because the interpreter of triton 3.9 takes no mask of a vector and a scalar otherwise.
    """
    inside = ids < VOCAB_SIZE
    is_changed = (flag & IS_CHANGED) != 0
    at = row.to(tl.int64) * VOCAB_SIZE + ids
    x = tl.load(logits + at, mask=(inside & (is_changed == 0)) != 0, other=float("-inf"))
    y = tl.load(changed + at, mask=(inside & is_changed) != 0, other=float("-inf"))
    return tl.where(is_changed, y, x)
