"""A traced step has the bits of an ordinary one and the same operations everywhere; what a tap writes takes effect."""

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.backend import Backend, StepBatch
from kernels.block_digest import digest_rows
from kernels.packing import SequenceRows, pack_batch
from kernels.reference import ReferenceBackend
from kernels.trace import (
    LAYER_OPERATIONS,
    OPERATIONS,
    OperationDigest,
    num_places,
    operation_at,
    place_of,
    trace_forward,
)
from tests.execution.steps import assert_same_bits
from tests.kernels.cpu_library import instruction_sets, loaded
from tests.kernels.cuda_device import loaded_on_gpu
from tests.kernels.tiny_models import GEMMA, SMALL, random_parameters

NATIVE = ["F32", "BF16", "Q4_1", "Q8_0", "Q5_0 with local layers"]
BLOCK_SIZE = 16
NUM_BLOCKS = 40


def make_backend(name: str) -> Backend:
    local = dataclasses.replace(GEMMA, num_layers=SMALL.num_layers, window=100)
    if name.startswith("reference"):
        shape = local if "local" in name else SMALL
        backend = ReferenceBackend(2)
        backend.load(random_parameters("F32", shape, has_bias=True, has_norms=True), 700)
        return backend
    if name == "cuda":
        return loaded_on_gpu(random_parameters("Q8_0", has_bias=True, has_norms=True), max_positions=700)
    instruction_sets()
    if "local" in name:
        return loaded(random_parameters("Q5_0", local, has_norms=True), max_positions=700)
    return loaded(random_parameters(name, has_bias=name == "F32", has_norms=name == "F32"), max_positions=700)


@pytest.fixture(scope="module", params=["reference", "reference with local layers", *NATIVE, "cuda"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return make_backend(request.param)


@pytest.mark.parametrize("format", ["BF16", "Q4_1"])
def test_every_instruction_set_gives_every_operation_the_same_bits(format: str) -> None:
    parameters = random_parameters(format)
    best, *others = [traced(loaded(parameters, instruction_set=name, max_positions=700)) for name in instruction_sets()]
    assert best
    assert all(other == best for other in others)


def a_step() -> list[StepBatch]:
    """A long prefill, then a step in company: one row of it with several splits of attention, a chunk, short rows."""
    tokens = np.random.default_rng(3).integers(0, SMALL.vocab_size, 700).tolist()
    first = pack_batch([SequenceRows(tokens[:300], 0, range(20), 0)], BLOCK_SIZE)
    rows = [
        SequenceRows(tokens[300:301], 300, range(20), 1),
        SequenceRows(tokens[400:425], 0, range(20, 24), 0),
        SequenceRows(tokens[500:503], 0, range(24, 25), 2),
    ]
    return [first, pack_batch(rows, BLOCK_SIZE)]


def fresh_memory(backend: Backend) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return backend.new_kv(NUM_BLOCKS, BLOCK_SIZE)


def traced(backend: Backend) -> list[OperationDigest]:
    before, step = a_step()
    keys, values = fresh_memory(backend)
    backend.forward(before, keys, values)
    return trace_forward(backend, step, keys, values)


def test_a_traced_step_gives_the_bits_of_an_ordinary_one(backend: Backend) -> None:
    before, step = a_step()
    plain, looked_at = fresh_memory(backend), fresh_memory(backend)
    for own in (plain, looked_at):
        backend.forward(before, *own)
    expected = backend.forward(step, *plain)
    hidden, logits = expected.hidden.copy(), expected.logits.copy()
    output = backend.forward_traced(step, *looked_at, lambda layer, operation, rows, result: None)
    assert_same_bits(logits, np.ascontiguousarray(output.logits), at_least=1000)
    assert_same_bits(hidden, np.ascontiguousarray(output.hidden), at_least=100)
    everywhere = np.arange(NUM_BLOCKS * BLOCK_SIZE)
    assert np.array_equal(backend.read_slots(plain, everywhere), backend.read_slots(looked_at, everywhere))


def test_every_operation_of_every_layer_is_shown_for_every_row_and_twice_the_same(backend: Backend) -> None:
    digests = traced(backend)
    _before, step = a_step()
    rows = range(len(step.token_ids))
    expected = {(-1, "embedding", row) for row in rows}
    expected |= {(layer, name, row) for layer in range(SMALL.num_layers) for name in LAYER_OPERATIONS for row in rows}
    expected |= {(-1, name, row) for name in ("final_norm", "head") for row in step.logit_rows.tolist()}
    assert {digest[:3] for digest in digests} == expected
    assert len(digests) == len(expected)
    assert traced(backend) == digests


def test_a_rows_digests_are_the_same_alone(backend: Backend) -> None:
    before, step = a_step()
    keys, values = fresh_memory(backend)
    backend.forward(before, keys, values)
    alone = pack_batch([SequenceRows([int(step.token_ids[0])], 300, range(20), 1)], BLOCK_SIZE)
    of_row = [digest for digest in traced(backend) if digest.row == 0]
    assert sorted(trace_forward(backend, alone, keys, values)) == sorted(of_row)


@pytest.mark.parametrize("name", ["F32", "cuda", pytest.param("reference", marks=pytest.mark.slow)])
def test_a_bit_flipped_in_an_operation_changes_it_and_nothing_before_it(name: str) -> None:
    backend = make_backend(name)
    honest = flipped(backend, None)
    for operation in OPERATIONS:
        layer = 1 if operation in LAYER_OPERATIONS else -1
        found = flipped(backend, (layer, operation))
        changed = [key for key in honest if honest[key] != found[key]]
        first = min(changed, key=lambda key: place_of(key[0], key[1], SMALL.num_layers))
        assert first == (layer, operation, 0)
        assert {key[2] for key in changed} == {0}, "other rows belong to other sequences"
        assert (-1, "head", 0) in changed, f"what {operation} gave was read by what follows"


def flipped(backend: Backend, where: tuple[int, str] | None) -> dict[tuple[int, str, int], int]:
    """Digests of the second step, in which one bit of row 0's first number is flipped in one operation."""
    found: dict[tuple[int, str, int], int] = {}

    def tap(layer: int, operation: str, rows: NDArray[np.int64], result: NDArray[np.float32]) -> None:
        if (layer, operation) == where and rows[0] == 0:
            result[0].view(np.uint8)[3] ^= 1  # of a float its exponent; of two bfloat16 the second one's
        for row, digest in zip(rows.tolist(), digest_rows(result).tolist(), strict=True):
            found[layer, operation, row] = digest

    before, step = a_step()
    keys, values = fresh_memory(backend)
    backend.forward(before, keys, values)
    backend.forward_traced(step, keys, values, tap)
    return found


def test_places_count_the_operations_in_the_order_of_computation(backend: Backend) -> None:
    order = list(dict.fromkeys(digest[:2] for digest in traced(backend)))
    for place in range(num_places(SMALL.num_layers)):
        layer, operation = operation_at(place, SMALL.num_layers)
        assert place_of(layer, operation, SMALL.num_layers) == place
    assert min(order, key=lambda pair: place_of(pair[0], pair[1], SMALL.num_layers)) == (-1, "embedding")
    assert len(order) == num_places(SMALL.num_layers)


def test_slots_read_the_same_wherever_they_lie(backend: Backend) -> None:
    before, _step = a_step()
    keys, values = fresh_memory(backend)
    backend.forward(before, keys, values)
    source = np.array([17, 18, 250])
    rows = backend.read_slots((keys, values), source)
    num_layers, _blocks, num_kv_heads, _block_size, head_dim = keys.shape
    assert rows.shape == (3, num_layers, 2 * num_kv_heads * head_dim)
    backend.write_slots((keys, values), np.array([600, 333, 604]), rows)
    assert np.array_equal(backend.read_slots((keys, values), np.array([600, 333, 604])), rows)
    assert np.array_equal(backend.read_slots((keys, values), source), rows)


def test_what_a_tap_raises_comes_through(backend: Backend) -> None:
    def tap(layer: int, operation: str, rows: NDArray[np.int64], result: NDArray[np.float32]) -> None:
        raise ValueError(f"seen {operation}")

    before, _step = a_step()
    with pytest.raises(ValueError, match="seen embedding"):
        backend.forward_traced(before, *fresh_memory(backend), tap)
