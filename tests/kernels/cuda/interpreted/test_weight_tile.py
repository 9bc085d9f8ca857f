"""Packed weights in the interpreter: every format is read as its file means it, to the bit."""

import pytest
import torch
import triton
import triton.language as tl

from kernels.cuda.launch import launch
from kernels.cuda.weight_tile import float_tile, plane_arguments, shape_constants
from kernels.cuda.weights import Weight, pack
from kernels.stored_tensor import FORMATS, StoredTensor
from tests.kernels.cuda.stored_matrices import stored_matrix

OUTPUTS, INPUTS = 32, 64


@triton.jit
def _dequantise(
    values: tl.tensor,
    scales: tl.tensor,
    minimums: tl.tensor,
    super_scales: tl.tensor,
    out: tl.tensor,
    NUM_OUTPUTS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    SUPER_GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
) -> None:
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    tile = float_tile(
        *(values, scales, minimums, super_scales, outputs, tl.program_id(1) * INPUTS),
        *(NUM_OUTPUTS, NUM_INPUTS, BITS, GROUP, SUPER_GROUP, OFFSET, HAS_MINIMUMS, OUTPUTS, INPUTS),
    )
    inputs = tl.program_id(1) * INPUTS + tl.arange(0, INPUTS)
    tl.store(out + outputs[:, None] * (tl.num_programs(1) * INPUTS) + inputs[None, :], tile)


def _read(weight: Weight) -> torch.Tensor:
    """All tiles, with what they hold beyond the weight."""
    (part,) = weight.parts
    grid = (-(-weight.num_outputs // OUTPUTS), -(-weight.num_inputs // INPUTS))
    out = torch.full((grid[0] * OUTPUTS, grid[1] * INPUTS), torch.nan)
    constants = {"OUTPUTS": OUTPUTS, "INPUTS": INPUTS, **shape_constants(part.shape)}
    launch(_dequantise, grid, *plane_arguments(part), out, **constants)
    return out


def _meant(stored: StoredTensor) -> torch.Tensor:
    numbers = torch.from_numpy(stored.float32())
    return numbers.bfloat16().float() if stored.format in ("F32", "F16") else numbers


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_read_as_its_file_says(format: str) -> None:
    num_inputs = 512 if format.endswith("_K") else 96
    stored = stored_matrix(format, 70, num_inputs, shuffled=True)
    read = _read(pack([stored], "cpu"))
    assert torch.equal(read[:70, :num_inputs], _meant(stored))
    assert not read[70:].any()  # beyond the weight there are zeros, not numbers of the next row
    assert not read[:, num_inputs:].any()


def test_matrices_of_one_layout_are_one_part() -> None:
    q, k, v = (stored_matrix("Q4_K", rows, 256, seed=rows) for rows in (40, 10, 10))
    weight = pack([q, k, v], "cpu")
    assert torch.equal(_read(weight)[:60, :256], torch.cat([_meant(q), _meant(k), _meant(v)]))


def test_matrices_of_mixed_formats_are_parts_in_their_order() -> None:
    stored = [stored_matrix(format, 8, 256) for format in ("Q4_K", "Q4_K", "Q6_K")]
    weight = pack(stored, "cpu")
    assert [(part.first_output, part.shape.num_outputs) for part in weight.parts] == [(0, 16), (16, 8)]


@pytest.mark.parametrize(
    ("format", "bits"),
    [("BF16", 16.0), ("Q8_0", 8.5), ("Q5_1", 9.0), ("Q4_0", 4.5), ("Q4_1", 5.0), ("Q4_K", 4.625), ("Q6_K", 8.625)],
)
def test_memory_is_what_the_planes_take(format: str, bits: float) -> None:
    assert pack([stored_matrix(format, 6, 512)], "cpu").num_bytes * 8 == bits * 6 * 512
