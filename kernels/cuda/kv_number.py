"""How a number lies in KV memory: bfloat16, or e4m3 (8 bits), as device functions for the kernels that store and read.

e4m3 lies in memory as uint8 and is made and read by integer operations, the same on every architecture: sm_80 knows no
8-bit floats. Its scale is 1, a number beyond ±448 becomes ±448, a NaN stays one, rounding is to nearest even. It is a
numerics class of its own, for it decides bits; every e4m3 is a bfloat16 exactly, so reading rounds nothing.

Source: Micikevicius et al., FP8 formats for deep learning, 2022 (E4M3: bias 7, no infinities, S.1111.111 is NaN).
"""

import triton
import triton.language as tl

_MAX = tl.constexpr(448.0)
_SMALLEST_NORMAL = tl.constexpr(0.015625)  # 2^-6
_2_14 = tl.constexpr(16384.0)  # its last place, as a float32, is 2^-9: the step of the subnormals
_BITS_OF_2_14 = tl.constexpr(0x46800000)
_EXPONENT_SHIFT = tl.constexpr(120 << 3)  # (127 - 7) in e4m3's places
_2_120 = tl.constexpr(1.329227995784916e36)


@triton.jit
def stored_number(number: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """float32 as memory of KIND holds it."""
    if KIND == tl.uint8:  # noqa: SIM300 (KIND is no constant to python)
        stored = _e4m3(number)
    else:
        stored = number.to(KIND)
    return stored


@triton.jit
def read_number(stored: tl.tensor) -> tl.tensor:
    """What lies in memory as bfloat16, exactly."""
    if stored.dtype == tl.uint8:
        bits = stored.to(tl.uint32)
        magnitude = ((bits & 0x7F) << 20).to(tl.float32, bitcast=True) * _2_120
        magnitude = tl.where((bits & 0x7F) == 0x7F, float("nan"), magnitude)
        number = tl.where(bits >= 0x80, -magnitude, magnitude).to(tl.bfloat16)
    else:
        number = stored
    return number


@triton.jit
def _e4m3(number: tl.tensor) -> tl.tensor:
    bits = number.to(tl.uint32, bitcast=True)
    magnitude = tl.minimum(tl.abs(number), _MAX)
    of_magnitude = magnitude.to(tl.uint32, bitcast=True)
    rounded = (of_magnitude + 0x7FFFF + ((of_magnitude >> 20) & 1)) >> 20
    subnormal = (magnitude + _2_14).to(tl.uint32, bitcast=True) - _BITS_OF_2_14
    low = tl.where(magnitude < _SMALLEST_NORMAL, subnormal, rounded - _EXPONENT_SHIFT)
    low = tl.where(number == number, low, 0x7F)
    return (low | ((bits >> 24) & 0x80)).to(tl.uint8)
