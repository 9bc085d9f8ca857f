"""What is asked of a row of logits on the device beside its statistics: bits of one int32 a row.

A row without a bit is drawn greedily from its unchanged logits; the kernels of draws pass over it.
"""

import triton.language as tl

CANDIDATES = 1  # its likeliest tokens after all changes
CHANGED = 2  # its logits are changed before a token is drawn
WHOLE = 4  # a draw from all of its tokens, and the sum of their weights
TOP = 8  # the likeliest tokens of its unchanged logits, to be told

IS_CANDIDATES, IS_CHANGED, IS_WHOLE = tl.constexpr(CANDIDATES), tl.constexpr(CHANGED), tl.constexpr(WHOLE)
