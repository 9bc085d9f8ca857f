"""Gemma 3 on the cuda backend: windows, two rotary bases, its norms, GELU and scales give the reference's numbers.

A row's bits stay its own.
"""

from dataclasses import replace

import numpy as np
import pytest

from kernels.backend import DecoderParameters, Floats
from kernels.cuda.backend import CudaBackend, unsupported_reason
from kernels.packing import pack_batch
from kernels.reference import ReferenceBackend
from kernels.trace import LAYER_OPERATIONS, trace_forward
from tests.execution.steps import Memory, Story, assert_same_bits, logits_in_chunks
from tests.kernels.tiny_models import GEMMA, random_parameters

WINDOW = 6
SHAPE = replace(
    GEMMA,
    num_layers=2,  # the first sees a window, the last everything
    hidden_size=64,
    intermediate_size=96,
    head_dim=32,
    vocab_size=120,
    window=WINDOW,
    embedding_scale=1.5,  # so that what the layers give is not lost beside it
    attention_scale=0.3,
)
PARAMETERS = random_parameters("Q8_0", SHAPE, has_norms=True)
LOCAL_ONLY = replace(PARAMETERS, layers=tuple([replace(layer, is_local=True) for layer in PARAMETERS.layers]))
TOKENS = [position * 37 % 120 for position in range(18)]
NUM_BLOCKS = 6


@pytest.fixture(scope="module")
def backend() -> CudaBackend:
    backend = CudaBackend()
    backend.load(PARAMETERS, 64)
    return backend


@pytest.fixture(scope="module")
def expected(backend: CudaBackend) -> Floats:
    """Of all rows, alone and in one chunk."""
    return logits_in_chunks(Memory(backend, NUM_BLOCKS), Story(TOKENS, (3, 1)), [len(TOKENS)], 0)


def assert_equal_bits(expected: Floats, actual: Floats) -> None:
    assert_same_bits(expected, actual, at_least=0)


def test_every_part_of_it_is_computed() -> None:
    assert len(SHAPE.beyond_llama) == 5
    assert unsupported_reason(SHAPE) is None


def of_reference(parameters: DecoderParameters) -> Floats:
    reference = ReferenceBackend(1)
    reference.load(parameters, 64)
    return logits_in_chunks(Memory(reference, NUM_BLOCKS), Story(TOKENS, (3, 1)), [len(TOKENS)], 0)


def test_logits_are_the_references_but_for_rounding(expected: Floats) -> None:
    """Relative to the largest: a bfloat16 has 8 bits, and errors of two layers' products add up."""
    exact = of_reference(PARAMETERS)
    assert np.abs(expected - exact).max() < 0.03 * np.abs(exact).max()


@pytest.mark.parametrize(
    "other",
    [{"embedding_scale": 1.0}, {"attention_scale": 0.0}, {"activation": "silu"}, {"window": 12}],
    ids=lambda other: next(iter(other)),
)
def test_each_figure_matters(expected: Floats, other: dict[str, object]) -> None:
    """The control: rounding would not hide one of them ignored."""
    otherwise = of_reference(replace(PARAMETERS, shape=replace(SHAPE, **other)))  # type: ignore[arg-type]
    assert np.abs(expected - otherwise).mean() > 3 * np.abs(expected - of_reference(PARAMETERS)).mean()


def test_chunks_blocks_and_company_change_no_bit(backend: CudaBackend, expected: Floats) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    mine, other = Story(TOKENS, (5, 2)), Story(TOKENS[::-1], (4, 0))
    pieces = [
        memory.step(other.rows(0, 3), mine.rows(0, 5, 5)),
        memory.step(mine.rows(5, 15, 10), other.rows(3, 4)),
        memory.step(other.rows(4, 5), mine.rows(15, 16, 1)),
        memory.step(mine.rows(16, 17, 1)),
        memory.step(mine.rows(17, 18, 1), other.rows(5, 6)),
    ]
    assert_equal_bits(expected, np.concatenate([piece.logits for piece in pieces]))


def test_a_token_before_all_windows_changes_no_bit_and_one_within_does() -> None:
    backend = CudaBackend()
    backend.load(LOCAL_ONLY, 64)
    reach = SHAPE.num_layers * (WINDOW - 1)
    plain, changed = (
        logits_in_chunks(Memory(backend, NUM_BLOCKS), Story(tokens, (3, 1)), [len(TOKENS)], 0)
        for tokens in (TOKENS, [*TOKENS[:2], TOKENS[2] + 1, *TOKENS[3:]])
    )
    differs = (plain != changed).any(axis=1)
    assert not differs[:2].any()
    assert differs[2 : 2 + reach + 1].all()
    assert not differs[2 + reach + 1 :].any()


def test_a_step_that_is_looked_into_has_the_same_bits_and_every_operation(backend: CudaBackend) -> None:
    batch = pack_batch([Story(TOKENS, (3, 1)).rows(0, 4, 2)], 16)
    plain = backend.forward(batch, *backend.new_kv(NUM_BLOCKS, 16)).logits.copy()
    digests = trace_forward(backend, batch, *backend.new_kv(NUM_BLOCKS, 16))
    for layer in range(SHAPE.num_layers):
        assert [each.operation for each in digests if (each.layer, each.row) == (layer, 0)] == list(LAYER_OPERATIONS)
    memory = backend.new_kv(NUM_BLOCKS, 16)
    looked_at = backend.forward_traced(batch, *memory, lambda layer, operation, rows, result: None)
    assert_equal_bits(plain, looked_at.logits)
