"""Digests of KV blocks where they lie: the number that `kernels/block_digest.py` gives for the same bytes.

A program adds up one block of one layer of keys or of values, in integers modulo 2^64: their order cannot matter. Only
the sums come to the host, which adds them and finishes. It must not know what keys and values mean.
"""

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from kernels.block_digest import finished
from kernels.cuda.launch import Variant, launch

_WORDS = 1024  # added at a time
_STEP = tl.constexpr(0x9E3779B97F4A7C15)


def digest_blocks(keys: torch.Tensor, values: torch.Tensor, blocks: Sequence[int]) -> list[int]:
    """The digest of each block, u64.

    keys, values   [layers, blocks, …] of any type, a block of a layer a whole number of 8 bytes; waits for the device
    """
    if not blocks:
        return []
    num_layers = keys.shape[0]
    wanted = torch.tensor(blocks, dtype=torch.int32).to(keys.device)
    sums = torch.empty(len(blocks), num_layers, 2, dtype=torch.int64, device=keys.device)
    for place, memory in enumerate((keys, values)):
        words = memory.view(torch.int64)
        num_words = words[0, 0].numel()
        grid = (len(blocks), num_layers)
        launch(_add_up, grid, words, wanted, sums, *words.stride()[:2], place, NUM_WORDS=num_words, WORDS=_WORDS)
    totals = sums.cpu().numpy().view(np.uint64).reshape(len(blocks), -1).sum(axis=1, dtype=np.uint64)
    return [int(digest) for digest in finished(totals)]


@triton.jit(do_not_specialize=["layer_stride", "block_stride", "place"])
def _add_up(
    memory: tl.tensor,
    blocks: tl.tensor,
    sums: tl.tensor,
    layer_stride: tl.tensor,
    block_stride: tl.tensor,
    place: tl.tensor,
    NUM_WORDS: tl.constexpr,
    WORDS: tl.constexpr,
) -> None:
    index, layer = tl.program_id(0), tl.program_id(1)
    part = layer * 2 + place  # keys of layer 0, values of layer 0, keys of layer 1, …
    block = tl.load(blocks + index).to(tl.int64)
    start = memory + layer.to(tl.int64) * layer_stride + block * block_stride
    total = tl.zeros((WORDS,), tl.uint64)
    for first in range(0, NUM_WORDS, WORDS):
        offsets = first + tl.arange(0, WORDS)
        inside = offsets < NUM_WORDS
        word = tl.load(start + offsets, mask=inside, other=0).to(tl.uint64, bitcast=True)
        position = (part.to(tl.int64) * NUM_WORDS + offsets + 1).to(tl.uint64)
        mixed = word ^ (position * _STEP)
        added = word + (mixed & 0xFFFFFFFF) * (mixed >> 32)
        total += tl.where(inside, added, tl.zeros((WORDS,), tl.uint64))
    entry = sums + (index * tl.num_programs(1) + layer) * 2 + place
    tl.store(entry, tl.sum(total, axis=0).to(tl.int64, bitcast=True))


_STRIDES = ("layer_stride", "block_stride")
VARIANTS = (
    Variant(
        "digest of blocks",
        _add_up,
        {"memory": "*i64", "blocks": "*i32", "sums": "*i64", **dict.fromkeys(_STRIDES, "i64"), "place": "i32"},
        {"NUM_WORDS": 3 * 16 * 64 // 4, "WORDS": _WORDS},
    ),
)
