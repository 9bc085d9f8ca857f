"""The native library for tests: one backend per instruction set, and single operations on numpy arrays."""

import ctypes as c
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.backend import DecoderParameters
from kernels.cpu.backend import CpuBackend
from kernels.cpu.library import LibraryUnavailable, available_instruction_sets, load_library

Floats = NDArray[np.float32]


@cache
def instruction_sets() -> tuple[str, ...]:
    try:
        return tuple(available_instruction_sets())
    except LibraryUnavailable as error:
        pytest.skip(f"{error}", allow_module_level=True)


def loaded(
    parameters: DecoderParameters,
    *,
    dtype: str = "auto",
    num_threads: int = 2,
    instruction_set: str | None = None,
    max_positions: int = 2304,
) -> CpuBackend:
    backend = CpuBackend(num_threads, dtype, instruction_set)
    backend.load(parameters, max_positions)
    return backend


def call(instruction_set: str, name: str, *arguments: object) -> None:
    """Call reprise_<name>; arrays are passed as pointers."""
    function = getattr(load_library(instruction_set), f"reprise_{name}")
    function(*[argument.ctypes.data if isinstance(argument, np.ndarray) else argument for argument in arguments])


def pointer(structure: c.Structure) -> object:
    return c.byref(structure)
