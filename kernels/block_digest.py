"""A 64-bit digest of a KV block over all layers, in numpy: what lies in memory, bit for bit, and where.

The meaning of `cpu/src/block_digest.h`, which says why it is what it is. Equal bits in equal places have equal digests,
whoever computes them; a word that changed, or two that changed places, are noticed but for one time in about 2^60. It
must not know what keys and values mean.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SHIFT = np.uint64(33)


def digest_blocks(keys: NDArray[Any], values: NDArray[Any], blocks: Sequence[int]) -> list[int]:
    """The digest of each block, u64.

    keys, values   [layers, blocks, …], a block of a layer in one piece, a whole number of 8 bytes
    """
    return [_digest(keys[:, block], values[:, block]) for block in blocks]


def digest_rows(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """The same digest over the bytes of each row of [n, …], the last word filled up with zeros: u64 [n]."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    if flat.shape[1] % 8:
        flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 8)))
    words = flat.view(np.uint64)
    mixed = words ^ (np.arange(1, words.shape[1] + 1, dtype=np.uint64) * _STEP)
    return finished((words + (mixed & _LOW) * (mixed >> _HALF)).sum(axis=1, dtype=np.uint64))


def finished(totals: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Digests of what the words of each row have added up to, in whatever order: u64 [n]."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        totals = (totals ^ (totals >> _SHIFT)) * np.uint64(factor)  # arrays wrap silently
    return totals ^ (totals >> _SHIFT)


def _digest(keys: NDArray[Any], values: NDArray[Any]) -> int:
    num_layers = len(keys)
    parts = [np.ascontiguousarray(part).reshape(num_layers, -1) for part in (keys, values)]
    return int(digest_rows(np.concatenate(parts, axis=1)[None])[0])  # layer 0's keys, layer 0's values, layer 1's …
