"""A weight as it lies in its file, and what it means in float32.

A backend may use the bytes as they are (`rows`) or the numbers (`float32`). Formats bear the GGUF names; a safetensors
file holds only F32, F16 and BF16, which GGUF has too. It must not know files, names of layers, or architectures.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_BLOCKS = {  # numbers and bytes of a block
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
FORMATS = tuple(_BLOCKS)

_ROWS_AT_A_TIME = 4096  # bounds the dequantiser's scratch memory


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """
    format    one of FORMATS
    shape     (num_rows, num_columns), or (length,) for a vector
    rows      uint8 [num_rows, bytes of a row], C-contiguous, possibly a memory map; a vector is one row
    row_order row i of the tensor is row row_order[i] of `rows`; None: as they lie
    """

    format: str
    shape: tuple[int, ...]
    rows: NDArray[np.uint8] = field(repr=False)
    row_order: NDArray[np.int64] | None = field(default=None, repr=False)

    def float32(self) -> NDArray[np.float32]:
        """The numbers, float32 of `shape`, contiguous, in memory of their own."""
        decode = _decoder(self.format)
        result = np.empty((self.rows.shape[0], row_length(self.format, self.rows.shape[1])), dtype=np.float32)
        for start in range(0, len(result), _ROWS_AT_A_TIME):
            end = min(start + _ROWS_AT_A_TIME, len(result))
            stored = self.rows[start:end] if self.row_order is None else self.rows[self.row_order[start:end]]
            result[start:end] = decode(stored)
        return result.reshape(self.shape)


def row_length(format: str, num_bytes: int) -> int:
    """How many numbers of `format` lie in a row of `num_bytes`."""
    block_length, block_bytes = _BLOCKS[format]
    return num_bytes // block_bytes * block_length


def row_bytes(format: str, length: int) -> int | None:
    """Bytes of a row of `length` numbers; None where these are no whole blocks of the format."""
    block_length, block_bytes = _BLOCKS[format]
    return None if length % block_length else length // block_length * block_bytes


def _decoder(format: str) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    if format == "F32":
        return lambda rows: np.ascontiguousarray(rows).view(np.float32)
    from gguf.constants import GGMLQuantizationType  # a backend that decodes rows itself never comes here
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[format]

    def decode(rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        numbers: NDArray[np.float32] = dequantize(np.ascontiguousarray(rows), kind)
        return numbers

    return decode
