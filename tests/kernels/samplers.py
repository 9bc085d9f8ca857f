"""All that draw tokens, on logits of the test's own: the reference, and each instruction set of the native library."""

import ctypes as c
from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.cpu import library as native
from kernels.cpu.draws import DrawCall
from kernels.reference_sampling import draw_token
from kernels.sampling import Draw, DrawRow

Floats = NDArray[np.float32]
STATISTICS = np.dtype([("highest_id", "i8"), ("total", "f8"), ("highest", "f4"), ("is_finite", "i4")])


class Sampler(Protocol):
    def draw(self, logits: Floats, rows: Sequence[DrawRow]) -> list[Draw]:
        """logits   [len(rows), vocab_size]"""
        ...


class ReferenceSampler:
    def draw(self, logits: Floats, rows: Sequence[DrawRow]) -> list[Draw]:
        return [draw_token(of_row, row) for of_row, row in zip(logits, rows, strict=True)]


class NativeSampler:
    """The library's, with a decoder that has threads and no weights."""

    def __init__(self, instruction_set: str, num_threads: int = 1) -> None:
        self._library = native.load_library(instruction_set)
        angles = np.zeros(8, dtype=np.float32)
        shape = native.Shape(1, 16, 16, 1, 1, 16, 16, 1e-5)
        self._decoder = self._library.reprise_create(
            c.byref(shape), 1, angles.ctypes.data, angles.ctypes.data, num_threads
        )
        self._call = DrawCall(self._library)

    def draw(self, logits: Floats, rows: Sequence[DrawRow]) -> list[Draw]:
        assert len(logits) == len(rows)
        return self.prepared(logits).draw(rows)

    def prepared(self, logits: Floats) -> "PreparedRows":
        """With the statistics made, as a step makes them."""
        statistics = np.zeros(len(logits), STATISTICS)
        for row, of_row in zip(logits, statistics, strict=True):
            self._library.reprise_row_statistics(row.ctypes.data, len(row), of_row.__array_interface__["data"][0])
        return PreparedRows(self._call, self._decoder, logits, statistics)


class PreparedRows:
    def __init__(self, call: DrawCall, decoder: int, logits: Floats, statistics: NDArray[np.void]) -> None:
        self._call, self._decoder = call, decoder
        self._kept = (logits, statistics)
        length = logits.shape[1]
        self._logits = native.LogitRows(logits.ctypes.data, length, length, statistics.ctypes.data)

    def draw(self, rows: Sequence[DrawRow]) -> list[Draw]:
        return self._call.draw(self._decoder, self._logits, rows)


REFERENCE = ReferenceSampler()


@cache
def native_sampler(instruction_set: str, num_threads: int = 1) -> NativeSampler:
    return NativeSampler(instruction_set, num_threads)


def native_sets() -> list[str]:
    """Of the library; none where it is not built."""
    try:
        return native.available_instruction_sets()
    except native.LibraryUnavailable:
        return []


def sampler(name: str) -> Sampler:
    """`reference`, or a name of `native_sets`."""
    return REFERENCE if name == "reference" else native_sampler(name)
