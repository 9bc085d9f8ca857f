"""The cuda backend's steps: the reference's numbers, a row's bits in any company, the same bits looked into.

One layer, hidden 64: a step takes the interpreter tenths of a second.
"""

from array import array
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.backend import Floats, StepBatch
from kernels.cuda.backend import CudaBackend, unsupported_reason
from kernels.cuda.graphs import Launches
from kernels.cuda.staging import Staging
from kernels.cuda.step_arrays import coarsely_padded, padded
from kernels.decoder import DecoderShape
from kernels.packing import pack_batch
from kernels.reference import ReferenceBackend
from kernels.reference_sampling import draw_token
from kernels.sampling import DrawParameters, DrawRow, ids_of
from kernels.trace import LAYER_OPERATIONS, trace_forward
from tests.execution.steps import Memory, Story, assert_same_bits, logits_in_chunks
from tests.kernels.tiny_models import random_parameters

SHAPE = DecoderShape(1, 64, 96, 4, 2, 16, 120, 1e-5)
PARAMETERS = random_parameters("Q8_0", SHAPE, has_bias=True, has_norms=True)
TOKENS = [position * 37 % 120 for position in range(18)]
NUM_BLOCKS = 12


def assert_equal_bits(expected: Floats, actual: Floats) -> None:
    """So few values suffice here: the interpreter shows that indices and order are right, and never a GPU's bits."""
    assert_same_bits(expected, actual, at_least=0)


def loaded(dtype: str = "auto") -> CudaBackend:
    backend = CudaBackend(dtype)
    backend.load(PARAMETERS, 512)
    return backend


@pytest.fixture(scope="module")
def backend() -> CudaBackend:
    return loaded()


@pytest.fixture(scope="module")
def story() -> Story:
    return Story(TOKENS, (3, 1))


@pytest.fixture(scope="module")
def expected(backend: CudaBackend, story: Story) -> Floats:
    """Of all rows, alone and in one chunk."""
    return logits_in_chunks(Memory(backend, NUM_BLOCKS), story, [len(TOKENS)], 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.03), ("float8", 0.15)])
def test_logits_are_the_references_but_for_rounding(story: Story, dtype: str, tolerance: float) -> None:
    """Relative to the largest: a bfloat16 has 8 bits, an e4m3 4, and errors of a layer's products add up."""
    reference = ReferenceBackend(1)
    reference.load(PARAMETERS, 512)
    of_reference = logits_in_chunks(Memory(reference, NUM_BLOCKS), story, [len(TOKENS)], 0)
    logits = logits_in_chunks(Memory(loaded(dtype), NUM_BLOCKS), story, [len(TOKENS)], 0)
    assert np.abs(logits - of_reference).max() < tolerance * np.abs(of_reference).max()


def test_chunks_blocks_and_company_change_no_bit(backend: CudaBackend, expected: Floats) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    mine, other = Story(TOKENS, (7, 2)), Story(TOKENS[::-1], (4, 5))
    pieces = [
        memory.step(other.rows(0, 3), mine.rows(0, 5, 5)),
        memory.step(mine.rows(5, 15, 10), other.rows(3, 4)),
        memory.step(other.rows(4, 5), mine.rows(15, 16, 1)),
        memory.step(mine.rows(16, 17, 1)),
        memory.step(other.rows(5, 6, 1), mine.rows(17, 18, 1)),
    ]
    logits = [piece.logits for piece in pieces[:-1]] + [pieces[-1].logits[1:]]
    assert_equal_bits(expected, np.concatenate(logits))


def test_old_contents_of_blocks_change_no_bit(backend: CudaBackend, story: Story, expected: Floats) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    memory.keys[:] = float("nan")
    memory.values[:] = float("inf")
    assert_equal_bits(expected, logits_in_chunks(memory, story, [len(TOKENS)], 0))


def test_one_early_token_changed_changes_every_later_row(backend: CudaBackend, expected: Floats) -> None:
    """The control: the comparisons above can fail."""
    changed = Story([TOKENS[0] + 1, *TOKENS[1:]], (3, 1))
    logits = logits_in_chunks(Memory(backend, NUM_BLOCKS), changed, [len(TOKENS)], 0)
    assert not (logits == expected).all(axis=1).any()


def test_a_step_that_is_looked_into_has_the_same_bits_and_every_operation(backend: CudaBackend, story: Story) -> None:
    batch = pack_batch([story.rows(0, 5, 2)], 16)
    plain = backend.forward(batch, *backend.new_kv(NUM_BLOCKS, 16)).logits.copy()
    digests = trace_forward(backend, batch, *backend.new_kv(NUM_BLOCKS, 16))
    assert [digest.operation for digest in digests if digest.layer == 0 and digest.row == 0] == list(LAYER_OPERATIONS)
    memory = backend.new_kv(NUM_BLOCKS, 16)
    looked_at = backend.forward_traced(batch, *memory, lambda layer, operation, rows, result: None)
    assert_equal_bits(plain, looked_at.logits)


@pytest.fixture(scope="module")
def two_rows(backend: CudaBackend, story: Story) -> tuple[StepBatch, Floats]:
    """A step, and its logits."""
    batch = pack_batch([story.rows(0, 2, 1)], 16)
    return batch, backend.forward(batch, *backend.new_kv(NUM_BLOCKS, 16)).logits.copy()


@pytest.mark.parametrize("operation", ["embedding", *LAYER_OPERATIONS, "final_norm"])
def test_what_is_written_to_an_operations_result_is_read_by_the_next(
    backend: CudaBackend, two_rows: tuple[StepBatch, Floats], operation: str
) -> None:
    batch, plain = two_rows

    def tap(layer: int, name: str, rows: NDArray[np.int64], result: NDArray[np.float32]) -> None:
        if name == operation:
            result[-1].view(np.uint8)[3::4] ^= 1  # of floats the exponents; of bfloat16s every second one's

    changed = backend.forward_traced(batch, *backend.new_kv(NUM_BLOCKS, 16), tap).logits
    assert not np.array_equal(plain, changed)


def test_slots_read_as_they_were_written(backend: CudaBackend, story: Story) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    memory.step(story.rows(0, 3))
    kv = memory.keys, memory.values
    source, target = np.array([3 * 16, 3 * 16 + 2]), np.array([16 + 5, 7])
    rows = backend.read_slots(kv, source)
    assert rows.shape == (2, 1, 2 * 2 * 16)
    assert rows.any()
    backend.write_slots(kv, target, rows)
    assert np.array_equal(backend.read_slots(kv, target), rows)
    assert np.array_equal(backend.read_slots(kv, source), rows)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8"])
def test_blocks_go_to_the_host_and_back_whole(story: Story, dtype: str) -> None:
    backend = loaded(dtype)
    memory = Memory(backend, NUM_BLOCKS)
    memory.step(story.rows(0, 18))
    pool, host = (memory.keys, memory.values), backend.new_host_kv(4, 16)
    before = backend.digest_blocks(pool, [3, 1, 6])
    assert before[0] != before[1]
    backend.copy_blocks(pool, host, [3, 1], [2, 0])
    backend.copy_blocks(host, pool, [0, 2], [5, 6])
    assert backend.digest_blocks(pool, [6, 5]) == before[:2]


ROWS_TO_DRAW = [
    DrawRow(DrawParameters(temperature=0.0), 0),
    DrawRow(DrawParameters(temperature=0.9, seed=7), 1),
    DrawRow(DrawParameters(temperature=0.0, num_logprobs=3), 0),
    DrawRow(DrawParameters(temperature=0.0), 4, banned=ids_of(range(60))),
    DrawRow(DrawParameters(temperature=0.0), 4, allowed=array("I", [0, 8])),
    DrawRow(DrawParameters(temperature=0.0, biased=ids_of([5]), biases=array("f", [99.0])), 0),
]


def test_tokens_are_drawn_as_the_reference_draws_them(backend: CudaBackend, story: Story) -> None:
    """Log-probabilities by the device's logarithm, which is its own."""
    output = Memory(backend, NUM_BLOCKS).step(story.rows(0, 6, 6))
    expected = [draw_token(logits, row) for logits, row in zip(output.logits, ROWS_TO_DRAW, strict=True)]
    for draw, of_reference in zip(backend.draw(ROWS_TO_DRAW), expected, strict=True):
        assert draw.token_id == of_reference.token_id
        assert draw.logprob == pytest.approx(of_reference.logprob, abs=1e-4)
        assert [token_id for token_id, _ in draw.top_logprobs] == [
            token_id for token_id, _ in of_reference.top_logprobs
        ]
    assert not backend.read_back


def test_draws_that_are_expected_come_with_the_steps_one_copy(
    backend: CudaBackend, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[str | None] = []
    download = Staging.download

    def counted(staging: Staging, before: str | None = None) -> None:
        copies.append(before)
        download(staging, before)

    monkeypatch.setattr(Staging, "download", counted)
    Memory(backend, NUM_BLOCKS).step(story.rows(0, 6, 6))
    unexpected = backend.draw(ROWS_TO_DRAW)
    assert copies == ["values", None]  # of the step alone, then of the draws
    backend.expect_draws(ROWS_TO_DRAW)
    Memory(backend, NUM_BLOCKS).step(story.rows(0, 6, 6))
    assert backend.draw(ROWS_TO_DRAW) == unexpected
    assert copies == ["values", None, None]


def test_what_cannot_be_computed_is_named() -> None:
    assert unsupported_reason(SHAPE) is None
    assert unsupported_reason(DecoderShape(1, 64, 96, 4, 2, 24, 120, 1e-5)) == (
        "heads of 24 dimensions: the CUDA kernels need a multiple of 16"
    )


def test_the_numerics_class_says_that_these_are_the_interpreters_bits(backend: CudaBackend) -> None:
    numerics = backend.numerics()
    assert numerics["device"] == "triton's interpreter"
    assert numerics["dtype"] == "bfloat16"
    assert loaded("float8").numerics() != numerics
    assert "head bits 8" in numerics["matrix_products"]


def test_padding_rows_leave_every_bit_as_it_is(backend: CudaBackend, story: Story, expected: Floats) -> None:
    """Five rows are computed as six; the sixth writes to the spare block, past all that anybody has."""
    memory = Memory(backend, NUM_BLOCKS)
    assert_equal_bits(expected[:5], memory.step(story.rows(0, 5, 5)).logits)
    assert memory.keys[:, NUM_BLOCKS].any()
    memory.keys[:, NUM_BLOCKS] = 0
    blocks = sorted({int(block) for block in memory.keys.abs().sum((0, 2, 3, 4)).nonzero()[:, 0]})
    assert blocks == [3]


def test_rows_of_a_prompt_need_no_logits(backend: CudaBackend, story: Story) -> None:
    output = Memory(backend, NUM_BLOCKS).step(story.rows(0, 3))
    assert output.hidden.shape == (0, 64)
    assert output.logits.shape == (0, 120)
    assert backend.draw([]) == []


def test_rows_are_padded_to_few_sizes() -> None:
    assert [padded(count, 16) for count in (0, 1, 16, 17, 24, 25, 33, 65, 100, 500)] == [
        *(0, 16, 16, 24, 24, 32, 48, 96, 128, 512),
    ]
    assert [coarsely_padded(count, 16) for count in (0, 1, 16, 17, 64, 65, 300)] == [0, 16, 16, 64, 64, 256, 1024]


@pytest.mark.parametrize("in_pieces", [True, False], ids=["in pieces", "as a whole"])
def test_what_was_captured_once_serves_all_later_steps_of_its_size(
    backend: CudaBackend, expected: Floats, in_pieces: bool
) -> None:
    """A capture here is the launches of the first step, started again: they must find the later step's numbers."""
    captures: list[Launches] = []

    def capture(launches: Launches) -> Launches:
        captures.append(launches)
        return launches

    backend.choose_graphs(capture, in_pieces=in_pieces)
    memory, mine, other = Memory(backend, NUM_BLOCKS), Story(TOKENS, (3, 1)), Story(TOKENS[::-1], (4, 5))
    logits = [
        memory.step(mine.rows(0, 6, 6)).logits,  # launch by launch; six rows of one sequence
        memory.step(mine.rows(6, 12, 6)).logits,  # captured
        memory.step(other.rows(0, 2), mine.rows(12, 16, 4)).logits,  # of two sequences: started again, if in pieces
        memory.step(mine.rows(16, 17, 1)).logits,  # decodes
        memory.step(mine.rows(17, 18, 1)).logits,
    ]
    backend.choose_graphs(None, in_pieces=True)
    assert_equal_bits(expected, np.concatenate(logits))
    assert len(captures) == (SHAPE.num_layers + 1 if in_pieces else 1) + 1


def test_a_row_that_is_read_whole_is_told(backend: CudaBackend, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "read_back", Counter())
    output = Memory(backend, NUM_BLOCKS).step(story.rows(0, 1, 1))
    biased_twice = DrawParameters(biased=ids_of([5, 5]), biases=array("f", [1.0, 2.0]), seed=3)
    rows = [DrawRow(biased_twice, 0)]
    assert backend.draw(rows)[0].token_id == draw_token(output.logits[0], rows[0]).token_id
    assert "1 rows of logits came to the host whole to be drawn from, by reason: {'logit_bias': 1}" in (
        backend.notices.pop()
    )
