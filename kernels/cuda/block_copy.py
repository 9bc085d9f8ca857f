"""KV blocks copied whole: within the device's memory, out to the host's and back (a swap).

Within the device a program copies a piece of one block of one layer. Between device and host the blocks are gathered
into one tensor, block by block, so that each crosses in one piece, keys and values apart; pinned memory is not waited
for. Bytes are moved, nothing is computed. It must not know what keys and values mean.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.cuda.launch import Variant, launch

_WORDS = 1024  # of one program
_STAGED_BLOCKS = 64  # bounds the memory that a swap takes on the device

Pair = tuple[torch.Tensor, torch.Tensor]


def copy_blocks(source: Pair, target: Pair, source_blocks: Sequence[int], target_blocks: Sequence[int]) -> None:
    """Write blocks of one KV memory over those of another, or of the same, in order, whole and in all layers.

    source, target   keys and values, [layers, blocks, …] each, alike but for the number of blocks and how they lie; on
                     the device a block of a layer lies in one piece. What comes to the host's memory has come when the
                     device's stream has been waited for
    """
    for run in _independent_runs(source_blocks, target_blocks, is_same=source[0].data_ptr() == target[0].data_ptr()):
        for from_memory, to_memory in zip(source, target, strict=True):
            if from_memory.device == to_memory.device:
                _copy(from_memory, to_memory, source_blocks[run], target_blocks[run])
            else:
                _cross(from_memory, to_memory, source_blocks[run], target_blocks[run])


def _independent_runs(sources: Sequence[int], targets: Sequence[int], is_same: bool) -> list[slice]:
    """Stretches of pairs that may be copied at once: none reads or writes what one before it in the stretch wrote."""
    runs: list[slice] = []
    start, written, read = 0, set[int](), set[int]()
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        is_full = index - start == _STAGED_BLOCKS
        if is_full or target in written or (is_same and (source in written or target in read)):
            runs.append(slice(start, index))
            start, written, read = index, set(), set()
        written.add(target)
        read.add(source)
    return [*runs, slice(start, len(sources))] if start < len(sources) else runs


def _cross(source: torch.Tensor, target: torch.Tensor, from_blocks: Sequence[int], to_blocks: Sequence[int]) -> None:
    """Between device and host, through blocks gathered on the device: [blocks, layers, …]."""
    staged_blocks = list(range(len(from_blocks)))
    on_device = source if source.device.type != "cpu" else target
    shape = (on_device.shape[0], len(from_blocks), *on_device.shape[2:])
    staged = torch.empty(shape[1], shape[0], *shape[2:], dtype=source.dtype, device=on_device.device).transpose(0, 1)
    if on_device is source:
        _copy(source, staged, from_blocks, staged_blocks)
        for index, block in enumerate(to_blocks):
            target[:, block].copy_(staged[:, index], non_blocking=True)
    else:
        for index, block in enumerate(from_blocks):
            staged[:, index].copy_(source[:, block], non_blocking=True)
        _copy(staged, target, staged_blocks, to_blocks)


def _copy(source: torch.Tensor, target: torch.Tensor, from_blocks: Sequence[int], to_blocks: Sequence[int]) -> None:
    """Where both lie on the device."""
    pairs = torch.tensor([from_blocks, to_blocks], dtype=torch.int32).to(source.device)
    from_words, to_words = source.view(torch.int64), target.view(torch.int64)
    num_words = from_words[0, 0].numel()
    grid = (triton.cdiv(num_words, _WORDS), len(from_blocks), source.shape[0])
    strides = (*from_words.stride()[:2], *to_words.stride()[:2])
    launch(
        _copy_words, grid, from_words, to_words, pairs, len(from_blocks), *strides, NUM_WORDS=num_words, WORDS=_WORDS
    )


_STRIDES = ("source_layer", "source_block", "target_layer", "target_block")


@triton.jit(do_not_specialize=["num_pairs", "source_layer", "source_block", "target_layer", "target_block"])
def _copy_words(
    source: tl.tensor,
    target: tl.tensor,
    pairs: tl.tensor,
    num_pairs: tl.tensor,
    source_layer: tl.tensor,
    source_block: tl.tensor,
    target_layer: tl.tensor,
    target_block: tl.tensor,
    NUM_WORDS: tl.constexpr,
    WORDS: tl.constexpr,
) -> None:
    pair, layer = tl.program_id(1), tl.program_id(2).to(tl.int64)
    offsets = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    inside = offsets < NUM_WORDS
    from_block, to_block = tl.load(pairs + pair).to(tl.int64), tl.load(pairs + num_pairs + pair).to(tl.int64)
    words = tl.load(source + layer * source_layer + from_block * source_block + offsets, mask=inside)
    tl.store(target + layer * target_layer + to_block * target_block + offsets, words, mask=inside)


VARIANTS = (
    Variant(
        "copy of blocks",
        _copy_words,
        {"source": "*i64", "target": "*i64", "pairs": "*i32", "num_pairs": "i32", **dict.fromkeys(_STRIDES, "i64")},
        {"NUM_WORDS": 3 * 16 * 64 // 4, "WORDS": _WORDS},
    ),
)
