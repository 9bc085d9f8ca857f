"""Each operation of the native library against float64 or the stored numbers, on every instruction set that runs here.

Lengths are odd on purpose: below a vector, a whole number of them, and past one.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.cpu.weights import stored_rows
from tests.kernels.cpu_library import Floats, call, instruction_sets, loaded, pointer
from tests.kernels.tiny_models import FORMATS, random_matrix, random_parameters

every_instruction_set = pytest.mark.parametrize("instruction_set", instruction_sets())
LENGTHS = (1, 15, 16, 17, 64, 80, 576, 1000)


def random_floats(length: int, scale: float = 1.0) -> Floats:
    return (np.random.default_rng(length).standard_normal(length) * scale).astype(np.float32)


@every_instruction_set
def test_exp_is_within_two_units_in_the_last_place(instruction_set: str) -> None:
    x = -np.concatenate([np.linspace(0, 87, 100_001), np.geomspace(1e-30, 87, 1000)]).astype(np.float32)
    result = np.empty_like(x)
    call(instruction_set, "exp", x, len(x), result)
    expected = np.exp(x.astype(np.float64))
    assert np.abs(result / expected - 1).max() < 2.4e-7  # two units: 2 × 2^-23


@every_instruction_set
def test_exp_of_less_than_minus_87_is_not_subnormal(instruction_set: str) -> None:
    x = np.array([-88.0, -1e30, -np.inf], dtype=np.float32)
    result = np.empty_like(x)
    call(instruction_set, "exp", x, len(x), result)
    assert (result >= np.finfo(np.float32).tiny).all()
    assert (result < 2e-38).all()


@every_instruction_set
@pytest.mark.parametrize("length", LENGTHS)
def test_rms_norm_is_that_of_float64(instruction_set: str, length: int) -> None:
    x, weight, result = (
        random_floats(length, 3),
        random_floats(length + 1)[:length].copy(),
        np.empty(length, np.float32),
    )
    call(instruction_set, "rms_norm", x, weight, length, 1e-5, result)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean() + 1e-5) * weight
    np.testing.assert_allclose(result, expected, rtol=1e-6)  # a sum of squares loses no digits to cancellation


@every_instruction_set
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
def test_a_head_is_rotated_half_against_half(instruction_set: str, head_dim: int) -> None:
    head, angles = random_floats(head_dim), random_floats(head_dim // 2, 10)
    cosines, sines = np.cos(angles), np.sin(angles)
    first, second = np.split(head.astype(np.float64), 2)
    expected = np.concatenate([first * cosines - second * sines, second * cosines + first * sines])
    call(instruction_set, "rotate", head, head_dim, cosines, sines)
    np.testing.assert_allclose(head, expected, atol=3e-7)  # each product and the sum rounded once


@every_instruction_set
@pytest.mark.parametrize("length", LENGTHS)
def test_the_gate_is_gelu_by_its_tanh_formula(instruction_set: str, length: int) -> None:
    gate, up, result = random_floats(length, 5), random_floats(length), np.empty(length, np.float32)
    call(instruction_set, "gated", 1, gate, up, length, result)
    exact = gate.astype(np.float64)
    expected = 0.5 * exact * (1 + np.tanh(np.sqrt(2 / np.pi) * (exact + 0.044715 * exact**3))) * up
    # The exponent is rounded, and of -20 the exponential is then off by a millionth.
    np.testing.assert_allclose(result, expected, rtol=3e-6, atol=1e-10)


@every_instruction_set
def test_gelu_of_very_large_numbers_is_finite(instruction_set: str) -> None:
    gate = np.array([1e15, -1e15, 100.0, -100.0, 0.0, -0.0], dtype=np.float32)
    result = np.empty_like(gate)
    call(instruction_set, "gated", 1, gate, np.ones_like(gate), len(gate), result)
    np.testing.assert_allclose(result, [1e15, 0, 100, 0, 0, 0], rtol=1e-6, atol=1e-20)


@every_instruction_set
@pytest.mark.parametrize("length", LENGTHS)
def test_the_gate_is_silu(instruction_set: str, length: int) -> None:
    gate, up, result = random_floats(length, 20), random_floats(length), np.empty(length, np.float32)
    call(instruction_set, "gated", 0, gate, up, length, result)
    exact = gate.astype(np.float64)
    expected = exact / (1 + np.exp(-exact)) * up
    np.testing.assert_allclose(result, expected, rtol=6e-7, atol=1e-37)  # exp's two units, a quotient, two products


@every_instruction_set
@pytest.mark.parametrize("format", FORMATS)
def test_a_stored_row_has_the_numbers_of_its_file(instruction_set: str, format: str) -> None:
    tensor = random_matrix(format, 7, 512, seed=3)
    rows, kept = stored_rows(tensor)
    expected = tensor.float32()
    for row in range(7):
        result = np.empty(512, np.float32)
        call(instruction_set, "decode_row", pointer(rows), row, result)
        np.testing.assert_array_equal(result, expected[row])
    assert kept


@every_instruction_set
@pytest.mark.parametrize("format", FORMATS)
def test_a_linear_layer_is_that_of_float64(instruction_set: str, format: str) -> None:
    """Of the activations as they are rounded: what is left is the order of the float sums."""
    parameters = random_parameters(format)
    backend = loaded(parameters, instruction_set=instruction_set)
    for probe in backend.linear_probes():
        weight = getattr(parameters.layers[0], probe.name).float32().astype(np.float64)
        rows = random_floats(13 * probe.num_inputs).reshape(13, probe.num_inputs)
        seen = rows if format in ("F32", "F16", "BF16") else rounded_to_int8(rows)
        expected = seen @ weight.T
        actual = probe.apply(rows)
        assert actual.shape == expected.shape
        assert (
            np.abs(actual - expected).max() < 4e-6 * np.abs(seen).max()
        )  # outputs are about 1, sums of 256 or 512 terms


def rounded_to_int8(rows: Floats) -> NDArray[np.float64]:
    blocks = rows.reshape(len(rows), -1, 32)
    highest = np.abs(blocks).max(axis=-1, keepdims=True)
    values = np.rint(blocks * (np.float32(127) / highest))
    scales = highest * (np.float32(1) / np.float32(127))
    rounded: NDArray[np.float64] = values.astype(np.float64) * scales
    return rounded.reshape(rows.shape)


@every_instruction_set
@pytest.mark.parametrize("length", [1, 16, 1003, 1024, 1025, 49152])
def test_the_statistics_of_a_row_are_those_of_float64(instruction_set: str, length: int) -> None:
    logits = random_floats(length, 5)
    logits[length // 2 :: 7] = logits.max()  # several are highest: the lowest id counts
    highest_id, total, highest, is_finite = statistics(instruction_set, logits)
    assert is_finite == 1
    assert highest == logits.max()
    assert highest_id == logits.argmax()
    assert total == pytest.approx(np.exp(logits.astype(np.float64) - float(logits.max())).sum(), rel=1e-6)


@every_instruction_set
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_said_to_be(instruction_set: str, bad: float) -> None:
    logits = random_floats(1003)
    logits[999] = bad
    assert statistics(instruction_set, logits)[3] == 0


def statistics(instruction_set: str, logits: Floats) -> tuple[int, float, float, int]:
    kind = np.dtype([("highest_id", "i8"), ("total", "f8"), ("highest", "f4"), ("is_finite", "i4")])
    result = np.zeros(1, kind)
    call(instruction_set, "row_statistics", logits, len(logits), result)
    return result[0].item()  # type: ignore[no-any-return]
