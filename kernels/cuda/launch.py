"""Where tensors live and how a kernel is started: the same way every time, so that the same code runs.

Triton compiles a kernel anew for what it sees of the arguments: a pointer's alignment, an integer that is 1 or a
multiple of 16. Another compilation may lay a sum out otherwise, and so change its bits. Hence pointers must be aligned,
integers are passed unspecialised, and a length that matters is a constant. Whether a multiplication and an addition are
fused is said outright, for triton's default differs between its versions.

It must not know what any kernel computes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton

Kernel = Any  # a function under @triton.jit; triton has no types

INTERPRETED: bool = triton.knobs.runtime.interpret  # TRITON_INTERPRET=1: kernels run in numpy
POINTER_ALIGNMENT = 16  # bytes
FUSE_MULTIPLY_ADD = False

if INTERPRETED:
    from kernels.cuda.interpreter import correct_interpreter

    correct_interpreter()


class CudaUnavailable(Exception):
    """There is no device for the kernels to run on; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One compilation of a kernel, as `launch` starts it: what the compile check builds without a GPU.

    name         unique; says for which model's shape
    signature    type of each parameter that is no constant, in triton's words: "*fp32", "*bf16", "i32", "fp32"
    constants    the constexpr parameters
    minimum      compute capability × 10 that it needs: 80, or 89 where it uses 8-bit floats of the hardware
    max_registers   that a thread may have; None: the assembler's own guess, which spills now and then
    """

    name: str
    kernel: Kernel
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 1
    minimum: int = 80
    max_registers: int | None = None


def device() -> torch.device:
    """The device that all tensors of a backend are made on: "cuda", or "cpu" in the interpreter.

    Raises CudaUnavailable.
    """
    if INTERPRETED:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise CudaUnavailable(
            "torch sees no CUDA device: choose another backend, install a CUDA build of torch and the NVIDIA driver, "
            "or set TRITON_INTERPRET=1 to run the kernels slowly in numpy"
        )
    return torch.device("cuda")


def launch(
    kernel: Kernel,
    grid: tuple[int, ...],
    *arguments: Any,
    num_warps: int = 4,
    num_stages: int = 1,
    max_registers: int | None = None,
    **constants: Any,
) -> None:
    """Start `kernel` on `grid` programs; an empty grid starts none.

    arguments   tensors and numbers in the kernel's order; tensors begin on a multiple of POINTER_ALIGNMENT bytes
    """
    if 0 in grid:
        return
    for argument in arguments:
        assert not isinstance(argument, torch.Tensor) or argument.data_ptr() % POINTER_ALIGNMENT == 0, "misaligned"
    kernel[grid](
        *arguments,
        num_warps=num_warps,
        num_stages=num_stages,
        maxnreg=max_registers,
        enable_fp_fusion=FUSE_MULTIPLY_ADD,
        **constants,
    )


def power_of_two(length: int) -> int:
    """The smallest power of two that holds `length`: triton's tiles have no other sizes."""
    return 1 << max(0, length - 1).bit_length()
