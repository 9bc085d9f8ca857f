"""Corrections to triton's interpreter, without which it computes something else than the kernels say.

Seen in triton 3.6 to 3.9: a product of bfloat16 tiles multiplies their raw bits as integers; float32 is cut, not
rounded, to bfloat16; and a product goes through np.matmul, whose bits depend on a row's place in the tile. Here a
product is a plain sum in float32 over ascending k, equal for every row whatever the tile, and rounding is to nearest
even. So the interpreter shows that indices and order are right; it never shows a GPU's bits.

It must not know any kernel. It changes triton's interpreter for the process, which TRITON_INTERPRET=1 asked for.
"""

from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter

_triton_convert = interpreter._convert_float
_prepared: set[int] = set()  # of the modules' globals whose device functions have been called


def correct_interpreter() -> None:
    """Put the corrections in place; once more changes nothing."""
    np.seterr(over="ignore", invalid="ignore", divide="ignore")  # a GPU warns of nothing
    interpreter._convert_float = _convert
    interpreter.InterpreterBuilder.create_dot = _dot
    interpreter.InterpretedFunction.__call__ = _call


def round_to_bfloat16(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(numbers), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _convert(data: NDArray[Any], from_type: Any, to_type: Any, rounding: Any) -> NDArray[Any]:
    if from_type == tl.float32 and to_type == tl.bfloat16:
        return round_to_bfloat16(data)
    if from_type == tl.bfloat16 and to_type == tl.float32:
        return _widen(data)
    converted: NDArray[Any] = _triton_convert(data, from_type, to_type, rounding)
    return converted


def _widen(bits: NDArray[Any]) -> NDArray[np.float32]:
    return (np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _dot(builder: Any, a: Any, b: Any, start: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    left, right = (_widen(x.data) if x.dtype.scalar == tl.bfloat16 else x.data for x in (a, b))
    kind = start.data.dtype
    product = np.einsum("...ik,...kj->...ij", left.astype(kind), right.astype(kind))
    return interpreter.TensorHandle(product + start.data, start.dtype.scalar)


def _call(function: Any, *arguments: Any, **named: Any) -> Any:
    """A device function's call. Triton prepares its module anew each time, which took half of all time."""
    module = id(function.fn.__globals__)
    if module not in _prepared:
        interpreter._patch_lang(function.fn)
        _prepared.add(module)
    return function.rewrite()(*arguments, **named)
