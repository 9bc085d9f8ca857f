"""Memory for what a step reads and writes: zeros that begin on a page of their own.

numpy aligns to 16 bytes, so every 64-byte load of keys would touch two cache lines. It must not know what it holds.
"""

import mmap
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """C-contiguous zeros of `shape`. The operating system gives a page when it is first written.

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
    return np.frombuffer(memory, kind, count).reshape(shape)
