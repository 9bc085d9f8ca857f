"""GGUF blocks → planes: a matrix's numbers and its scales, each in an array of their own, as a GPU reads them well.

A block of a file holds its scale beside its numbers, at addresses that no wide load can use. Here the numbers of a row
lie one after the other. The scales of 64 inputs are one 32-bit word, the least that a GPU can fetch ahead of its use,
and the words of the same inputs lie one output after the other. Nothing is rounded but F32 and F16, which become the
bfloat16 that a matrix product takes anyway. It must not know tiles or kernels.
Sources of the formats: ggml-quants.c and the gguf package.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """How a number is made of its planes: number = scale × (stored - offset) + minimum, in float32, in this order.

    bits         of a stored number: 16 (the bfloat16 itself), 8 (signed) or 4 (unsigned, the even input low)
    group        inputs that share a scale; 0: no scales
    super_group  inputs that share a super scale; 0: none. With one, a scale is super scale × int8, a minimum likewise
    """

    bits: int
    group: int = 0
    super_group: int = 0
    offset: int = 0
    has_minimums: bool = False


LAYOUTS = {
    "F32": Layout(16),
    "F16": Layout(16),
    "BF16": Layout(16),
    "Q4_0": Layout(4, 32, offset=8),
    "Q4_1": Layout(4, 32, has_minimums=True),
    "Q5_0": Layout(8, 32),
    "Q5_1": Layout(8, 32, has_minimums=True),
    "Q8_0": Layout(8, 32),
    "Q4_K": Layout(4, 32, 256, has_minimums=True),
    "Q5_K": Layout(8, 32, 256, has_minimums=True),
    "Q6_K": Layout(8, 16, 256),
}


INPUTS_A_WORD = 64


@dataclass(frozen=True, slots=True)
class Planes:
    """
    values         bfloat16 or int8 [outputs, inputs], or uint8 [outputs, inputs / 2]
    scales         int32 [⌈inputs / 64⌉, outputs]: two float16; with a super group four int8, of which the last two are
                   the minimums where the format has any. The first input's lie lowest; what pads the last word is 0
    minimums       the same of float16 minimums
    super_scales   int32 [inputs / super_group, outputs]: the float16 super scale, and above it that of the minimums
    """

    values: Tensor
    scales: Tensor | None = None
    minimums: Tensor | None = None
    super_scales: Tensor | None = None


def planes_of(format: str, rows: Tensor, num_inputs: int) -> Planes:
    """The planes of `rows`, uint8 [outputs, bytes of a row], contiguous, on the device where `rows` lies."""
    if format in _PLAIN:
        return Planes(rows.view(_PLAIN[format]).to(torch.bfloat16))
    block_bytes, unpack = _UNPACKERS[format]
    fields = unpack(rows.view(-1, block_bytes))
    num_outputs = rows.shape[0]
    numbers = fields.numbers.reshape(num_outputs, num_inputs)
    values = _pairs(numbers) if LAYOUTS[format].bits == 4 else numbers.to(torch.int8)
    of_words = fields.scales, fields.minimums, fields.supers
    return Planes(values, *(None if field is None else _words(field, num_outputs) for field in of_words))


def _words(field: Tensor, num_outputs: int) -> Tensor:
    """`field`'s bytes as int32 [words, outputs]."""
    of_outputs = field.reshape(num_outputs, -1)
    missing = -of_outputs.shape[1] * of_outputs.element_size() % 4
    padded = torch.nn.functional.pad(of_outputs, (0, missing // of_outputs.element_size()))
    return padded.contiguous().view(torch.int32).t().contiguous()


@dataclass(frozen=True, slots=True)
class _Fields:
    """What blocks hold, block after block, in the order of the inputs and of the words that they make."""

    numbers: Tensor
    scales: Tensor
    minimums: Tensor | None = None
    supers: Tensor | None = None


_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def _halves(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte `at` of each block, [blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16)


def _nibbles(data: Tensor, run: int) -> Tensor:
    """Low halves of `run` bytes, then their high halves, run after run: uint8 [blocks, 2 × bytes]."""
    runs = data.reshape(len(data), -1, 1, run)
    return torch.cat((runs & 15, runs >> 4), dim=2).reshape(len(data), -1)


def _bits(data: Tensor, shifts: range, mask: int) -> Tensor:
    """`data` [blocks, …, 1, bytes] shifted right by each of `shifts`, in their order: [blocks, all]."""
    return torch.cat([(data >> shift) & mask for shift in shifts], dim=-2).reshape(len(data), -1)


def _pairs(numbers: Tensor) -> Tensor:
    """Two neighbouring columns in one byte, the even one low."""
    return numbers[:, 0::2] | numbers[:, 1::2] << 4


def _q4_0(blocks: Tensor) -> _Fields:
    return _Fields(_nibbles(blocks[:, 2:], 16), _halves(blocks, 0))


def _q4_1(blocks: Tensor) -> _Fields:
    return _Fields(_nibbles(blocks[:, 4:], 16), _halves(blocks, 0), _halves(blocks, 2))


def _fifths(word: Tensor) -> Tensor:
    """Bit after bit of four bytes, as the value 16 or 0: uint8 [blocks, 32]."""
    return torch.stack([(word >> shift) & 1 for shift in range(8)], dim=-1).reshape(len(word), -1) << 4


def _q5_0(blocks: Tensor) -> _Fields:
    numbers = _nibbles(blocks[:, 6:], 16) | _fifths(blocks[:, 2:6])
    return _Fields(numbers.to(torch.int8) - 16, _halves(blocks, 0))


def _q5_1(blocks: Tensor) -> _Fields:
    return _Fields(_nibbles(blocks[:, 8:], 16) | _fifths(blocks[:, 4:8]), _halves(blocks, 0), _halves(blocks, 2))


def _q8_0(blocks: Tensor) -> _Fields:
    return _Fields(blocks[:, 2:].contiguous().view(torch.int8), _halves(blocks, 0))


def _k_scales(blocks: Tensor) -> Tensor:
    """The eight 6-bit scales and minimums in twelve bytes, as words: get_scale_min_k4 of ggml-quants.c."""
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((low & 63, (high & 15) | (low >> 6 << 4)), dim=1)
    minimums = torch.cat((middle & 63, (high >> 4) | (middle >> 6 << 4)), dim=1)
    return torch.cat((scales.view(-1, 4, 2), minimums.view(-1, 4, 2)), dim=2)


def _k_supers(blocks: Tensor) -> Tensor:
    """A block subtracts its minimum; here it is added."""
    return torch.cat((_halves(blocks, 0), -_halves(blocks, 2)), dim=1)


def _q4_k(blocks: Tensor) -> _Fields:
    return _Fields(_nibbles(blocks[:, 16:], 32), _k_scales(blocks), None, _k_supers(blocks))


def _q5_k(blocks: Tensor) -> _Fields:
    numbers = _nibbles(blocks[:, 48:], 32) | _bits(blocks[:, None, 16:48], range(8), 1) << 4
    return _Fields(numbers, _k_scales(blocks), None, _k_supers(blocks))


def _q6_k(blocks: Tensor) -> _Fields:
    low = _nibbles(blocks[:, 0:128], 64)
    high = _bits(blocks[:, 128:192].reshape(-1, 2, 1, 32), range(0, 8, 2), 3)
    scale = _halves(blocks, 208)
    supers = torch.cat((scale, torch.zeros_like(scale)), dim=1)
    return _Fields((low | high << 4).to(torch.int8) - 32, blocks[:, 192:208], None, supers)


_UNPACKERS: dict[str, tuple[int, Callable[[Tensor], _Fields]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q5_0": (22, _q5_0),
    "Q5_1": (24, _q5_1),
    "Q8_0": (34, _q8_0),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
}
