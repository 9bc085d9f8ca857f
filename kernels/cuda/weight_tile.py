"""A rectangle of a packed weight as float32, in registers: the one way in which stored numbers become numbers.

number = scale × (stored - offset) + minimum, rounded as written after each operation: what `StoredTensor.float32` says,
to the bit. Called by other kernels; it must not know what they do with it.
"""

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.tiles import Shape
from kernels.cuda.weights import Part

_BITS_OF_2_23 = tl.constexpr(0x4B000000)  # of 8388608.0: its lowest bits count in ones
_2_23 = tl.constexpr(8388608.0)


def plane_arguments(part: Part) -> tuple[Any, ...]:
    """The five planes in the order in which the kernels take them; None where the format has none."""
    planes = part.planes
    return planes.values, planes.scales, planes.minimums, planes.super_scales, planes.super_minimums


def shape_constants(shape: Shape) -> dict[str, int]:
    """The constants under which the kernels know a weight's shape and layout."""
    layout = shape.layout
    return {
        "NUM_OUTPUTS": shape.num_outputs,
        "NUM_INPUTS": shape.num_inputs,
        "BITS": layout.bits,
        "GROUP": layout.group,
        "SUPER_GROUP": layout.super_group,
        "OFFSET": layout.offset,
    }


@triton.jit
def float_tile(
    values: tl.tensor,
    scales: tl.tensor,
    minimums: tl.tensor,
    super_scales: tl.tensor,
    super_minimums: tl.tensor,
    outputs: tl.tensor,
    first_input: tl.tensor,
    NUM_OUTPUTS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    SUPER_GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
) -> tl.tensor:
    """float32 [OUTPUTS, INPUTS]: zeros outside the weight.

    outputs       int [OUTPUTS]: rows of the weight, in any order; those from NUM_OUTPUTS on are zeros
    first_input   a multiple of INPUTS; with a super group INPUTS divides it
    """
    stored = stored_tile(values, outputs, first_input, NUM_OUTPUTS, NUM_INPUTS, BITS, OFFSET, OUTPUTS, INPUTS)
    if BITS == 16:
        numbers = stored.to(tl.float32)
    else:
        GROUPS: tl.constexpr = INPUTS // GROUP
        groups = first_input // GROUP + tl.arange(0, GROUPS)
        of_groups = groups[None, :] * NUM_OUTPUTS + outputs[:, None]
        inside = (outputs[:, None] < NUM_OUTPUTS) & (groups[None, :] < NUM_INPUTS // GROUP)
        scale = tl.load(scales + of_groups, mask=inside, other=0.0).to(tl.float32)
        if SUPER_GROUP > 0:
            of_super_group = first_input // SUPER_GROUP * NUM_OUTPUTS + outputs
            super_scale = tl.load(super_scales + of_super_group, mask=outputs < NUM_OUTPUTS, other=0.0)
            scale = super_scale.to(tl.float32)[:, None] * scale
        grouped = scale[:, :, None] * tl.reshape(stored, (OUTPUTS, GROUPS, GROUP))
        if minimums is not None:
            minimum = tl.load(minimums + of_groups, mask=inside, other=0.0).to(tl.float32)
            if SUPER_GROUP > 0:
                super_minimum = tl.load(super_minimums + of_super_group, mask=outputs < NUM_OUTPUTS, other=0.0)
                minimum = super_minimum.to(tl.float32)[:, None] * minimum
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
