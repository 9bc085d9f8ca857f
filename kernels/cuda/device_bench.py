"""Tiles run and timed on a device, over inputs and weights that the shape alone decides.

The same numbers on every machine, so that digests of results can be compared between machines. It must not know which
tile is wanted.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime.errors import OutOfResources

from kernels.cuda.autotune import DoesNotFit
from kernels.cuda.device_time import median_seconds
from kernels.cuda.linear import linear_part
from kernels.cuda.planes import INPUTS_A_WORD, Planes
from kernels.cuda.tiles import Shape, Tile, default_plan
from kernels.cuda.weights import Part

NUM_ROWS = 200  # of the fixed inputs: with 576 outputs more than 10⁵ sums are compared
_TIMES = 9  # the median of so many
_COMPARED_OUTPUTS = 8192  # the first of them: a head has sixteen times as many, and they are no different
_PERIOD = 999_983  # prime, so that no two rows of a matrix are alike
_FLUSHED_BYTES = 256 << 20  # written before each time measured: more than any cache holds


class DeviceBench:
    """See `autotune.Bench`. One shape's weight is held at a time."""

    def __init__(self, device: torch.device, num_rows: int = NUM_ROWS) -> None:
        self.num_rows = num_rows
        self._device = device
        self._part = lru_cache(maxsize=1)(self._made)

    def run(self, shape: Shape, tile: Tile, num_rows: int) -> NDArray[np.float32]:
        part, x = self._part(shape)
        out = torch.empty(num_rows, shape.num_outputs, device=self._device)
        try:
            linear_part(x[:num_rows].contiguous(), part, tile, out, None)
        except OutOfResources as error:
            raise DoesNotFit(str(error)) from error
        result: NDArray[np.float32] = out[:, :_COMPARED_OUTPUTS].cpu().numpy()
        return result

    def seconds(self, shape: Shape, tile: Tile, num_rows: int) -> float:
        """Of a weight that no cache holds, as a step meets it. The first run, which compiles, is not counted."""
        part, x = self._part(shape)
        rows = x.repeat(-(-num_rows // self.num_rows), 1)[:num_rows].contiguous()
        out = torch.empty(num_rows, shape.num_outputs, device=self._device)
        flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.int8, device=self._device)
        # flushing also keeps the device busy until the launch has come
        return median_seconds(lambda: linear_part(rows, part, tile, out, None), _TIMES, before=flushed.zero_)

    def _made(self, shape: Shape) -> tuple[Part, torch.Tensor]:
        x = _fixed((self.num_rows, shape.num_inputs), 1, _bfloat16(-1.0, 1.0), self._device)
        return Part(0, shape, fixed_planes(shape, self._device), default_plan(shape)), x


def fixed_planes(shape: Shape, device: torch.device) -> Planes:
    """Planes of arbitrary numbers of a model's size, the same ones everywhere."""
    layout, outputs, inputs = shape
    if layout.bits == 16:
        return Planes(_fixed((outputs, inputs), 2, _bfloat16(-0.1, 0.1), device))
    if layout.bits == 4:
        values = _fixed((outputs, inputs // 2), 2, lambda bytes_: bytes_.to(torch.uint8), device)
    else:
        values = _fixed((outputs, inputs), 2, lambda bytes_: (bytes_ - 128).to(torch.int8), device)
    words = -(-inputs // INPUTS_A_WORD)
    if layout.super_group:
        scales = _fixed((words, 4 * outputs), 3, lambda bytes_: (bytes_ & 63).to(torch.int8), device)
        supers = _fixed((inputs // layout.super_group, 2 * outputs), 4, _float16(1e-5, 1e-4), device)
        return Planes(values, scales.view(torch.int32), None, supers.view(torch.int32))
    scales = _fixed((words, 2 * outputs), 3, _float16(1e-4, 1e-2), device).view(torch.int32)
    return Planes(values, scales, scales.flip(0) if layout.has_minimums else None)


Conversion = Callable[[torch.Tensor], torch.Tensor]


def _fixed(sizes: tuple[int, int], salt: int, converted: Conversion, device: torch.device) -> torch.Tensor:
    """Bytes that look arbitrary, a multiplicative hash of each place, converted. They recur after a prime number.

    Source: Knuth, The Art of Computer Programming, section 6.4.
    """
    places = torch.arange(_PERIOD, dtype=torch.int64, device=device) + salt * 7919
    recurring = converted(places * 2654435761 >> 20 & 255)
    count = sizes[0] * sizes[1]
    return recurring.repeat(-(-count // _PERIOD))[:count].view(sizes)


def _bfloat16(low: float, high: float) -> Conversion:
    return lambda bytes_: (low + (high - low) / 255 * bytes_.to(torch.float32)).to(torch.bfloat16)


def _float16(low: float, high: float) -> Conversion:
    return lambda bytes_: (low + (high - low) / 255 * bytes_.to(torch.float32)).to(torch.float16)
