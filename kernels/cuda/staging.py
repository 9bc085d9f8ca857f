"""One copy to the device before a step, one back after it: arrays laid side by side in memory that cannot be paged out.

A step brings a dozen small arrays; copied one by one each would cost a launch. The parts of a layout lie at fixed
places, so a CUDA graph that was captured over them finds the next step's arrays where it found the first's. It must not
know what the arrays mean.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.cuda.launch import POINTER_ALIGNMENT

Kinds = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # name → shape and dtype

_NUMPY: dict[torch.dtype, type[np.generic]] = {
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.bfloat16: np.uint16,  # which numpy has not
}


class Staging:
    """Arrays that lie on both sides.

    host     name → numpy array of its shape, in pinned memory where there is a GPU
    device   name → tensor on the device
    bytes    all of the device's side, uint8
    """

    def __init__(self, kinds: Kinds, device: torch.device) -> None:
        self._places, size = _places(kinds)
        size = max(size, POINTER_ALIGNMENT)  # there is always something to copy
        is_pinned = device.type == "cuda"
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=is_pinned)
        self.bytes = torch.zeros(size, dtype=torch.uint8, device=device)
        self._uploaded = torch.cuda.Event() if is_pinned else None  # type: ignore[no-untyped-call]  # torch has no types
        self.host: dict[str, NDArray[Any]] = {}
        self.device: dict[str, torch.Tensor] = {}
        for name, (shape, dtype) in kinds.items():
            part = slice(self._places[name], self._places[name] + _size(shape, dtype))
            self.host[name] = self._host[part].numpy().view(_NUMPY[dtype]).reshape(shape)
            self.device[name] = self.bytes[part].view(dtype).view(shape)

    def wait(self) -> None:
        """Until the host's side may be written: what it held has gone to the device."""
        if self._uploaded is not None:
            self._uploaded.synchronize()

    def upload(self) -> None:
        """Host to device, in the order of the stream; `wait` before the host's side is written again."""
        self.bytes.copy_(self._host, non_blocking=True)
        if self._uploaded is not None:
            self._uploaded.record()

    def download(self, before: str | None = None) -> None:
        """Device to host, in the order of the stream: the host's side is there once the stream has come so far.

        before   only what lies before the array of this name; None: all
        """
        end = self._places[before] if before else len(self.bytes)
        self._host[:end].copy_(self.bytes[:end], non_blocking=True)


def num_bytes(kinds: Kinds) -> int:
    """On either side."""
    return _places(kinds)[1]


def _places(kinds: Kinds) -> tuple[dict[str, int], int]:
    """Where each part begins, and all bytes."""
    places, end = {}, 0
    for name, (shape, dtype) in kinds.items():
        places[name] = end
        end += -(-_size(shape, dtype) // POINTER_ALIGNMENT) * POINTER_ALIGNMENT
    return places, end


def _size(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return int(np.prod(shape)) * dtype.itemsize
