"""A rectangle of a packed weight as float32, in registers: the one way in which stored numbers become numbers.

number = scale × (stored - offset) + minimum, rounded as written after each operation: what `StoredTensor.float32` says,
to the bit. Called by other kernels; it must not know what they do with it.
"""

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.planes import Layout
from kernels.cuda.tiles import Shape
from kernels.cuda.weights import Part

_BITS_OF_2_23 = tl.constexpr(0x4B000000)  # of 8388608.0: its lowest bits count in ones
_2_23 = tl.constexpr(8388608.0)


def plane_arguments(part: Part) -> tuple[Any, ...]:
    """The four planes in the order in which the kernels take them; None where the format has none."""
    planes = part.planes
    return planes.values, planes.scales, planes.minimums, planes.super_scales


def plane_types(layout: Layout) -> dict[str, str]:
    """Triton's word for each plane that the layout has, by the kernels' name for it."""
    words = {name: "*i32" for name, exists in _has_words(layout).items() if exists}
    return {"values": {16: "*bf16", 8: "*i8", 4: "*u8"}[layout.bits], **words}


def absent_planes(layout: Layout) -> dict[str, None]:
    """The other planes: constants, to the compiler."""
    return {name: None for name, exists in _has_words(layout).items() if not exists}


def _has_words(layout: Layout) -> dict[str, bool]:
    return {
        "scales": layout.group > 0,
        "minimums": layout.has_minimums and not layout.super_group,
        "super_scales": layout.super_group > 0,
    }


def shape_constants(shape: Shape) -> dict[str, Any]:
    """The constants under which the kernels know a weight's shape and layout."""
    layout = shape.layout
    return {
        "NUM_OUTPUTS": shape.num_outputs,
        "NUM_INPUTS": shape.num_inputs,
        "BITS": layout.bits,
        "GROUP": layout.group,
        "SUPER_GROUP": layout.super_group,
        "OFFSET": layout.offset,
        "HAS_MINIMUMS": layout.has_minimums,
    }


@triton.jit
def float_tile(
    values: tl.tensor,
    scales: tl.tensor,
    minimums: tl.tensor,
    super_scales: tl.tensor,
    outputs: tl.tensor,
    first_input: tl.tensor,
    NUM_OUTPUTS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    SUPER_GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
) -> tl.tensor:
    """float32 [OUTPUTS, INPUTS]: zeros outside the weight.

    outputs       int [OUTPUTS]: rows of the weight, in any order; those from NUM_OUTPUTS on are zeros
    first_input   a multiple of INPUTS, which are a multiple of 64; with a super group INPUTS divides it
    """
    stored = stored_tile(values, outputs, first_input, NUM_OUTPUTS, NUM_INPUTS, BITS, OFFSET, OUTPUTS, INPUTS)
    if BITS == 16:
        numbers = stored.to(tl.float32)
    else:
        GROUPS: tl.constexpr = INPUTS // GROUP
        words = _words(scales, outputs, first_input, NUM_OUTPUTS, NUM_INPUTS, INPUTS)
        if SUPER_GROUP > 0:
            of_tile = first_input // SUPER_GROUP * NUM_OUTPUTS + outputs
            supers = tl.load(super_scales + of_tile, mask=outputs < NUM_OUTPUTS, other=0)[:, None]
            if HAS_MINIMUMS:
                scale = _half(supers, 0) * tl.reshape(tl.join(_byte(words, 0), _byte(words, 1)), (OUTPUTS, GROUPS))
                minimum = _half(supers, 1) * tl.reshape(tl.join(_byte(words, 2), _byte(words, 3)), (OUTPUTS, GROUPS))
            else:
                even, odd = tl.join(_byte(words, 0), _byte(words, 2)), tl.join(_byte(words, 1), _byte(words, 3))
                scale = _half(supers, 0) * tl.reshape(tl.join(even, odd), (OUTPUTS, GROUPS))
        else:
            scale = tl.reshape(tl.join(_half(words, 0), _half(words, 1)), (OUTPUTS, GROUPS))
            if HAS_MINIMUMS:
                words = _words(minimums, outputs, first_input, NUM_OUTPUTS, NUM_INPUTS, INPUTS)
                minimum = tl.reshape(tl.join(_half(words, 0), _half(words, 1)), (OUTPUTS, GROUPS))
        grouped = scale[:, :, None] * tl.reshape(stored, (OUTPUTS, GROUPS, GROUP))
        if HAS_MINIMUMS:
            grouped = grouped + minimum[:, :, None]
        numbers = tl.reshape(grouped, (OUTPUTS, INPUTS))
    return numbers


@triton.jit
def stored_tile(
    values: tl.tensor,
    outputs: tl.tensor,
    first_input: tl.tensor,
    NUM_OUTPUTS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    BITS: tl.constexpr,
    OFFSET: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
) -> tl.tensor:
    """The stored numbers, offset taken off: bfloat16 as they lie, or float32 of 8 or 4 bits."""
    NUMBERS_IN_ONE: tl.constexpr = 2 if BITS == 4 else 1
    columns = first_input // NUMBERS_IN_ONE + tl.arange(0, INPUTS // NUMBERS_IN_ONE)
    rows = outputs.to(tl.int64)[:, None] * (NUM_INPUTS // NUMBERS_IN_ONE)
    inside = outputs[:, None] < NUM_OUTPUTS
    if NUM_INPUTS % INPUTS != 0:
        inside = inside & (columns[None, :] < NUM_INPUTS // NUMBERS_IN_ONE)
    stored = tl.load(values + rows + columns[None, :], mask=inside, other=0.0)
    if BITS == 4:
        pairs = tl.join(stored & 15, stored >> 4)
        numbers = _small_float(tl.reshape(pairs, (OUTPUTS, INPUTS)).to(tl.int32), OFFSET)
    elif BITS == 8:
        numbers = _small_float(stored.to(tl.int32) + 128, 128 + OFFSET)
    else:
        numbers = stored
    return numbers


@triton.jit
def _small_float(number: tl.tensor, OFFSET: tl.constexpr) -> tl.tensor:
    """float32 of int32 0 … 2²³-1, less OFFSET, exactly. A conversion instruction would take eight times as long."""
    return (number | _BITS_OF_2_23).to(tl.float32, bitcast=True) - (_2_23 + OFFSET)


@triton.jit
def _words(
    plane: tl.tensor,
    outputs: tl.tensor,
    first_input: tl.tensor,
    NUM_OUTPUTS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
) -> tl.tensor:
    """int32 [OUTPUTS, INPUTS / 64] of a plane of words."""
    words = first_input // 64 + tl.arange(0, INPUTS // 64)
    inside = (outputs[:, None] < NUM_OUTPUTS) & (words[None, :] < (NUM_INPUTS + 63) // 64)
    return tl.load(plane + words[None, :] * NUM_OUTPUTS + outputs[:, None], mask=inside, other=0)


@triton.jit
def _half(word: tl.tensor, PLACE: tl.constexpr) -> tl.tensor:
    """The float16 in the low (0) or high half (1) of a word, as float32."""
    return (word >> 16 * PLACE).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _byte(word: tl.tensor, PLACE: tl.constexpr) -> tl.tensor:
    """The signed byte at a place of a word, as float32."""
    return (word >> 8 * PLACE).to(tl.int8).to(tl.float32)
