"""Layers whose queries see a window of keys: both backends say the same, and a row's bits are its own.

Random models of Gemma 3's kind; windows shorter than the rows of one attention task, of one split, and of several.
`test_cpu_invariance.py` and `test_cpu_instruction_sets.py` have the native backend's other proofs.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kernels.backend import Backend, DecoderParameters, Floats
from kernels.reference import ReferenceBackend
from kernels.selftest import run_thorough_test
from tests.execution.steps import Memory, Story, assert_same_bits, logits_in_chunks
from tests.kernels.cpu_library import instruction_sets, loaded
from tests.kernels.tiny_models import GEMMA, random_parameters

instruction_sets()  # skips all of this where the library is not built

LENGTH = 700
FIRST_WANTED = 580  # the rows from here on
NUM_BLOCKS = 90
SMALL_GEMMA = dataclasses.replace(GEMMA, head_dim=32, hidden_size=64, intermediate_size=96, num_heads=2)


def some_slow(*values: int) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def parameters_of(window: int, *, all_local: bool = False) -> DecoderParameters:
    parameters = random_parameters("F32", dataclasses.replace(SMALL_GEMMA, window=window), has_norms=True)
    if not all_local:
        return parameters
    layers = tuple([dataclasses.replace(layer, is_local=True) for layer in parameters.layers])
    return dataclasses.replace(parameters, layers=layers)


def reference(parameters: DecoderParameters) -> Backend:
    backend = ReferenceBackend(2)
    backend.load(parameters, LENGTH)
    return backend


def native(parameters: DecoderParameters) -> Backend:
    return loaded(parameters, dtype="float32", max_positions=LENGTH)


def tokens(seed: int, count: int = LENGTH) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(0, GEMMA.vocab_size, count).tolist()
    return found


def logits_of(backend: Backend, sequence: Sequence[int], ends: Sequence[int] = (LENGTH,), first: int = 0) -> Floats:
    return logits_in_chunks(Memory(backend, NUM_BLOCKS), Story(sequence, range(44)), ends, first)


@pytest.mark.parametrize("window", [*some_slow(1, 100, 256), 5, 300, 515])
def test_the_native_backend_gives_the_logits_of_the_reference(window: int) -> None:
    """Sums of float32 products in another order: logits are about 5."""
    parameters = parameters_of(window)
    expected, actual = (logits_of(backend(parameters), tokens(1)) for backend in (reference, native))
    assert 1 < np.abs(expected).max() < 100
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-4)


@pytest.mark.parametrize("make", [reference, native])
@pytest.mark.parametrize("window", [3, 50])
def test_a_token_before_all_windows_changes_no_bit_and_one_within_does(
    make: Callable[[DecoderParameters], Backend], window: int
) -> None:
    backend = make(parameters_of(window, all_local=True))
    reach = GEMMA.num_layers * (window - 1)  # rows after the changed one that something of it comes to
    plain, changed = tokens(1), tokens(1)
    changed[200] = (changed[200] + 1) % GEMMA.vocab_size
    differs = (logits_of(backend, plain) != logits_of(backend, changed)).any(axis=1)
    assert not differs[:200].any()
    assert differs[200 : 200 + reach + 1].all()
    assert not differs[200 + reach + 1 :].any()


@pytest.fixture(scope="module", params=[*some_slow(100), 6, 515])
def backend(request: pytest.FixtureRequest) -> Backend:
    return reference(parameters_of(request.param))


@pytest.fixture(scope="module")
def expected(backend: Backend) -> Floats:
    return logits_of(backend, tokens(1), first=FIRST_WANTED)


@pytest.mark.parametrize("chunk", [7, 97])
def test_chunks_change_no_bit(backend: Backend, expected: Floats, chunk: int) -> None:
    ends = [*range(chunk, LENGTH, chunk), LENGTH]
    assert_same_bits(expected, logits_of(backend, tokens(1), ends, FIRST_WANTED))


def test_decoded_in_company_and_shuffled_blocks_of_old_contents_changes_no_bit(
    backend: Backend, expected: Floats
) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    memory.keys[:, :NUM_BLOCKS], memory.values[:, :NUM_BLOCKS] = np.nan, np.inf
    mine = Story(tokens(1), [block * 37 % NUM_BLOCKS for block in range(44)])
    other = Story(tokens(2), [block * 37 % NUM_BLOCKS for block in range(44, 88)])
    memory.step(mine.rows(0, FIRST_WANTED), other.rows(0, 300))
    decoded = []
    for position in range(FIRST_WANTED, LENGTH):
        start = 300 + (position - FIRST_WANTED) * 2
        company = [other.rows(start, start + 2)] if position % 3 else [other.rows(start, start + 1)]
        before = company if position % 2 else []
        after = [] if position % 2 else company
        decoded.append(memory.step(*before, mine.rows(position, position + 1, 1), *after).logits)
        if position % 3 == 0:
            memory.step(other.rows(start + 1, start + 2))
    assert_same_bits(expected, np.concatenate(decoded))


def test_a_prefix_in_another_requests_blocks_changes_no_bit(backend: Backend, expected: Floats) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    memory.step(Story(tokens(1), range(44)).rows(0, 512))
    own = Story(tokens(1), [*range(32), *reversed(range(60, 80))])
    assert_same_bits(expected, memory.step(own.rows(512, LENGTH, LENGTH - FIRST_WANTED)).logits)


@pytest.mark.parametrize("block_size", [5, 48])
def test_the_size_of_blocks_changes_no_bit(backend: Backend, expected: Floats, block_size: int) -> None:
    memory = Memory(backend, LENGTH // block_size + 1, block_size)
    story = Story(tokens(1), reversed(range(LENGTH // block_size + 1)))
    assert_same_bits(expected, logits_in_chunks(memory, story, [600, LENGTH], FIRST_WANTED))


@pytest.mark.slow
def test_the_thorough_self_test_holds(backend: Backend) -> None:
    assert run_thorough_test(backend, num_threads=2).failures == ()


def test_the_thorough_self_test_of_the_native_backend_holds() -> None:
    assert run_thorough_test(native(parameters_of(100)), num_threads=2).failures == ()
