"""The cuda backend for tests that are parametrised by backend: on a GPU, and skipped with the reason where none is.

In triton's interpreter it has tests of its own (`tests/execution/interpreted`), of a size that this bears.
"""

from typing import TYPE_CHECKING

import pytest

from kernels.cuda_driver import ask_driver
from kernels.decoder import DecoderParameters

if TYPE_CHECKING:
    from kernels.cuda.backend import CudaBackend


def loaded_on_gpu(parameters: DecoderParameters, *, dtype: str = "auto", max_positions: int = 2304) -> "CudaBackend":
    missing = ask_driver().missing
    if missing:
        pytest.skip(f"cuda: {missing}")
    from kernels.cuda.backend import CudaBackend

    backend = CudaBackend(dtype)
    backend.load(parameters, max_positions)
    return backend
