"""Memory for what a step reads and writes: zeros that begin on a page of their own, a large one where there is much.

numpy aligns to 16 bytes, so every 64-byte load of keys would touch two cache lines. Keys and values are read in pieces
of 2 KiB all over the pool, and in 4 KiB pages each costs a page walk: large pages made decoding at 300 to 800 tokens of
context 1.05 to 1.1 times as fast. It must not know what it holds.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LARGE_PAGE = 2 << 20


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """C-contiguous zeros of `shape`. The operating system gives a page (4 KiB, or 2 MiB) when it is first written.

    Raises MemoryError with the figure.
    """
    kind, count = np.dtype(dtype), prod(shape)
    if count == 0:
        return np.zeros(shape, kind)
    num_bytes = count * kind.itemsize
    try:
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{num_bytes} bytes of memory cannot be had ({error})") from error
    if num_bytes >= 2 * _LARGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them: the pages are small
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, kind, count).reshape(shape)


def new_kv(shape: tuple[int, ...], dtype: DTypeLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys and values of `shape`, zero."""
    return zeros(shape, dtype), zeros(shape, dtype)


def new_host_kv(shape: tuple[int, ...], dtype: DTypeLike, num_blocks: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Views [layers, num_blocks, …] of memory [num_blocks, layers, …]; `shape` is that of any pool.

    In the pool's own order the first block of 64 MiB touches all of it, a page of 2 MiB for each layer's keys and
    values: 12 to 18 ms a block were measured, and the rate then kept swapping away.
    """
    num_layers, _num_blocks, *of_block = shape
    keys, values = new_kv((num_blocks, num_layers, *of_block), dtype)
    return keys.swapaxes(0, 1), values.swapaxes(0, 1)


def copy_blocks(
    source: NDArray[Any], target: NDArray[Any], source_blocks: Sequence[int], target_blocks: Sequence[int]
) -> None:
    """Write `source_blocks` of `source` over `target_blocks` of `target`, one by one, in all layers.

    source, target   [layers, blocks, …], equal but for the number of blocks and the order in memory; may be the same
    """
    for source_block, target_block in zip(source_blocks, target_blocks, strict=True):
        target[:, target_block] = source[:, source_block]
