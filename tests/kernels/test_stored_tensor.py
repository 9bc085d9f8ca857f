"""Every stored format means the numbers that ggml's own definition gives, written out here number by number."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.stored_tensor import FORMATS, StoredTensor, row_bytes, row_length

BLOCKS_PER_ROW = 3


def half(data: bytes, at: int) -> float:
    value: float = struct.unpack_from("<e", data, at)[0]
    return value


def q4_0(block: bytes) -> list[float]:
    low = [(byte & 15) - 8 for byte in block[2:18]]
    high = [(byte >> 4) - 8 for byte in block[2:18]]
    return [half(block, 0) * value for value in low + high]


def q4_1(block: bytes) -> list[float]:
    nibbles = [byte & 15 for byte in block[4:20]] + [byte >> 4 for byte in block[4:20]]
    return [half(block, 0) * value + half(block, 2) for value in nibbles]


def fifth_bits(word: bytes) -> list[int]:
    (bits,) = struct.unpack("<I", word)
    return [bits >> index & 1 for index in range(32)]


def q5_0(block: bytes) -> list[float]:
    nibbles = [byte & 15 for byte in block[6:22]] + [byte >> 4 for byte in block[6:22]]
    fifth = fifth_bits(block[2:6])
    return [half(block, 0) * (nibble + 16 * bit - 16) for nibble, bit in zip(nibbles, fifth, strict=True)]


def q5_1(block: bytes) -> list[float]:
    nibbles = [byte & 15 for byte in block[8:24]] + [byte >> 4 for byte in block[8:24]]
    fifth = fifth_bits(block[4:8])
    pairs = zip(nibbles, fifth, strict=True)
    return [half(block, 0) * (nibble + 16 * bit) + half(block, 2) for nibble, bit in pairs]


def q8_0(block: bytes) -> list[float]:
    return [half(block, 0) * value for value in struct.unpack("<32b", block[2:])]


def k_scale(scales: bytes, index: int) -> tuple[int, int]:
    """get_scale_min_k4 of ggml-quants.c."""
    if index < 4:
        return scales[index] & 63, scales[index + 4] & 63
    scale = scales[index + 4] & 15 | scales[index - 4] >> 6 << 4
    return scale, scales[index + 4] >> 4 | scales[index] >> 6 << 4


def q4_k(block: bytes) -> list[float]:
    numbers, quants = [], block[16:]
    for group in range(8):
        scale, minimum = k_scale(block[4:16], group)
        for index in range(32):
            byte = quants[group // 2 * 32 + index]
            nibble = byte >> 4 if group % 2 else byte & 15
            numbers.append(half(block, 0) * scale * nibble - half(block, 2) * minimum)
    return numbers


def q5_k(block: bytes) -> list[float]:
    numbers, high, quants = [], block[16:48], block[48:]
    for group in range(8):
        scale, minimum = k_scale(block[4:16], group)
        for index in range(32):
            byte = quants[group // 2 * 32 + index]
            nibble = byte >> 4 if group % 2 else byte & 15
            value = nibble + 16 * (high[index] >> group & 1)
            numbers.append(half(block, 0) * scale * value - half(block, 2) * minimum)
    return numbers


def q6_k(block: bytes) -> list[float]:
    numbers = [0.0] * 256
    scales = struct.unpack("<16b", block[192:208])
    for part in range(2):
        low, high = block[64 * part : 64 * part + 64], block[128 + 32 * part : 160 + 32 * part]
        for index in range(32):
            for quarter in range(4):
                byte = low[index + 32 * (quarter % 2)]
                nibble = byte >> 4 if quarter >= 2 else byte & 15
                value = (nibble | (high[index] >> 2 * quarter & 3) << 4) - 32
                scale = scales[8 * part + index // 16 + 2 * quarter]
                numbers[128 * part + 32 * quarter + index] = half(block, 208) * scale * value
    return numbers


# format → (bytes of a block, its meaning, where its half-precision scales stand)
DEFINITIONS: dict[str, tuple[int, Callable[[bytes], list[float]], tuple[int, ...]]] = {
    "F32": (4, lambda block: [struct.unpack("<f", block)[0]], ()),
    "F16": (2, lambda block: [half(block, 0)], (0,)),
    "BF16": (2, lambda block: [struct.unpack("<f", b"\0\0" + block)[0]], ()),
    "Q4_0": (18, q4_0, (0,)),
    "Q4_1": (20, q4_1, (0, 2)),
    "Q5_0": (22, q5_0, (0,)),
    "Q5_1": (24, q5_1, (0, 2)),
    "Q8_0": (34, q8_0, (0,)),
    "Q4_K": (144, q4_k, (0, 2)),
    "Q5_K": (176, q5_k, (0, 2)),
    "Q6_K": (210, q6_k, (208,)),
}


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_format_means_what_its_definition_says(format: str, data: st.DataObject) -> None:
    size, meaning, scales = DEFINITIONS[format]
    blocks = [make_block(data, size, scales, format) for _ in range(2 * BLOCKS_PER_ROW)]
    rows = np.frombuffer(b"".join(blocks), np.uint8).reshape(2, -1)
    expected = np.array([number for block in blocks for number in meaning(block)]).reshape(2, -1)
    numbers = StoredTensor(format, expected.shape, rows).float32()
    # float32 may round a product and a sum; the definition here rounds once, at the end
    np.testing.assert_allclose(numbers, expected, rtol=1e-6, atol=float(np.abs(expected).max()) * 1e-6)


def make_block(data: st.DataObject, size: int, scales: tuple[int, ...], format: str) -> bytes:
    """Random quants under scales of ordinary size."""
    if format in ("F32", "BF16"):
        value = data.draw(st.floats(-100, 100, width=32))
        return struct.pack("<f", value)[-size:]
    block = bytearray(data.draw(st.binary(min_size=size, max_size=size)))
    for at in scales:
        struct.pack_into("<e", block, at, data.draw(st.floats(-8, 8, width=16)))
    return bytes(block)


def test_every_format_has_a_definition_here() -> None:
    assert set(DEFINITIONS) == set(FORMATS)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_are_whole_blocks(format: str) -> None:
    size = DEFINITIONS[format][0]
    length = row_length(format, 4 * size)
    assert row_bytes(format, length) == 4 * size


def test_a_row_order_is_followed() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    tensor = StoredTensor("F32", (4, 3), values.view(np.uint8), np.array([2, 0, 3, 1]))
    assert tensor.float32().tolist() == values[[2, 0, 3, 1]].tolist()
