"""A row's bits depend on its own tokens alone: not on company, chunks, blocks, the prefix cache or threads.

Real model, real text, float32 logits compared bit for bit. The last rows lie beyond 512 positions, so that three
splits of attention are merged.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from engine.execution.model import Model
from kernels.backend import Backend, Floats
from kernels.packing import SequenceRows
from tests.execution.steps import Memory, Story, assert_same_bits, logits_in_chunks
from tests.kernels.cuda_device import loaded_on_gpu
from tests.model_fixtures import MAX_POSITIONS, NUM_THREADS

LENGTH = 540
SHORT = 150
FIRST_WANTED = 500  # rows 500 … 539: on both sides of the third split's beginning
NUM_BLOCKS = 80
BLOCKS = range(34)


@pytest.fixture(scope="module", params=["reference", "cuda"])
def backend(request: pytest.FixtureRequest, default_model: Model) -> Backend:
    if request.param == "cuda":
        return loaded_on_gpu(default_model.parameters, max_positions=MAX_POSITIONS)
    backend: Backend = request.getfixturevalue("default_backend")
    return backend


@pytest.fixture(scope="module")
def story(text_tokens: list[int]) -> Story:
    return Story(text_tokens[:LENGTH], BLOCKS)


@pytest.fixture(scope="module")
def expected(backend: Backend, story: Story) -> Floats:
    """Alone, in one chunk."""
    return logits_in_chunks(Memory(backend, NUM_BLOCKS), story, [LENGTH], FIRST_WANTED)


@pytest.fixture(scope="module")
def prefix_memory(backend: Backend, story: Story) -> Memory:
    """The first 496 tokens, whole blocks, written by another request."""
    memory = Memory(backend, NUM_BLOCKS)
    memory.step(story.rows(0, 496))
    return memory


@pytest.fixture(scope="module")
def short_expected(backend: Backend, text_tokens: list[int]) -> Floats:
    return logits_in_chunks(Memory(backend, NUM_BLOCKS), Story(text_tokens[:SHORT], BLOCKS), [SHORT], 0)


@pytest.mark.parametrize("chunk", [7, 33, 64])
def test_chunks_of_a_prefill_change_no_bit(
    backend: Backend, text_tokens: list[int], short_expected: Floats, chunk: int
) -> None:
    story = Story(text_tokens[:SHORT], BLOCKS)
    ends = [*range(chunk, SHORT, chunk), SHORT]
    assert_same_bits(short_expected, logits_in_chunks(Memory(backend, NUM_BLOCKS), story, ends, 0))


def test_chunks_across_splits_change_no_bit(backend: Backend, story: Story, expected: Floats) -> None:
    ends = [97, 255, 257, 400, 511, 513, LENGTH]
    assert_same_bits(expected, logits_in_chunks(Memory(backend, NUM_BLOCKS), story, ends, FIRST_WANTED))


def test_a_decoded_row_is_the_prefilled_row_whatever_the_company(
    story: Story, expected: Floats, prefix_memory: Memory, text_tokens: list[int]
) -> None:
    """Rows 500 … 539 one by one, each step with 0, 1, 2 … 15 other sequences before or behind it."""
    prefix_memory.step(story.rows(496, FIRST_WANTED))
    company = Company(text_tokens)
    decoded = []
    for position in range(FIRST_WANTED, LENGTH):
        others = company.rows(position % 16)
        num_before = position * 7 % (len(others) + 1)
        mine = story.rows(position, position + 1, 1)
        decoded.append(prefix_memory.step(*others[:num_before], mine, *others[num_before:]).logits)
    assert_same_bits(expected, np.concatenate(decoded))


class Company:
    """Up to 15 other sequences that decode from other tokens, in blocks 40 and up."""

    def __init__(self, text_tokens: list[int]) -> None:
        self._tokens = text_tokens
        self._lengths = [0] * 15

    def rows(self, count: int) -> list[SequenceRows]:
        return [self._next(index) for index in range(count)]

    def _next(self, index: int) -> SequenceRows:
        position = self._lengths[index]
        self._lengths[index] += 1
        tokens = self._tokens[600 + 20 * index :]
        return SequenceRows(tokens[position : position + 1], position, (40 + 2 * index, 41 + 2 * index, 70 + index), 0)


def test_a_chunk_in_company_of_other_chunks_has_the_same_bits(
    backend: Backend, text_tokens: list[int], short_expected: Floats
) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    mine, other = Story(text_tokens[:SHORT], range(20, 30)), Story(text_tokens[600:], range(40, 70))
    logits = [
        memory.step(other.rows(0, 37), mine.rows(0, 50, 50)).logits,
        memory.step(mine.rows(50, 101, 51), other.rows(37, 300)).logits,
        memory.step(other.rows(300, 301), mine.rows(101, SHORT, 49), other.rows(301, 302)).logits,
    ]
    assert_same_bits(short_expected, np.concatenate(logits))


def test_shuffled_blocks_full_of_old_contents_change_no_bit(backend: Backend, story: Story, expected: Floats) -> None:
    memory = Memory(backend, NUM_BLOCKS)
    memory.keys[:, :NUM_BLOCKS] = np.nan
    memory.values[:, :NUM_BLOCKS] = np.inf
    shuffled = Story(story.tokens, [block * 37 % NUM_BLOCKS for block in range(34)])
    assert_same_bits(expected, logits_in_chunks(memory, shuffled, [300, LENGTH], FIRST_WANTED))


def test_a_prefix_found_in_another_requests_blocks_changes_no_bit(
    story: Story, expected: Floats, prefix_memory: Memory
) -> None:
    own = Story(story.tokens, [*BLOCKS[:31], 75, 71, 78])  # 31 blocks of 16 are the other request's
    logits = prefix_memory.step(own.rows(496, LENGTH, LENGTH - FIRST_WANTED)).logits
    assert_same_bits(expected, logits)


def test_blocks_that_straddle_two_splits_change_no_bit(backend: Backend, story: Story, expected: Floats) -> None:
    memory = Memory(backend, num_blocks=12, block_size=48)
    backwards = Story(story.tokens, reversed(range(12)))
    assert_same_bits(expected, logits_in_chunks(memory, backwards, [LENGTH], FIRST_WANTED))


def test_blocks_of_an_odd_size_change_no_bit(backend: Backend, text_tokens: list[int], short_expected: Floats) -> None:
    memory = Memory(backend, num_blocks=30, block_size=5)
    backwards = Story(text_tokens[:SHORT], reversed(range(30)))
    assert_same_bits(short_expected, logits_in_chunks(memory, backwards, [SHORT], 0))


@pytest.fixture
def one_thread(backend: Backend) -> Iterator[None]:
    backend.set_num_threads(1)
    yield
    backend.set_num_threads(NUM_THREADS)


@pytest.mark.usefixtures("one_thread")
def test_one_thread_gives_the_bits_of_two(backend: Backend, story: Story, expected: Floats) -> None:
    assert_same_bits(expected, logits_in_chunks(Memory(backend, NUM_BLOCKS), story, [LENGTH], FIRST_WANTED))


def test_one_early_token_changed_changes_every_later_row(backend: Backend, story: Story, expected: Floats) -> None:
    """The control: the comparison above can fail."""
    changed = Story([*story.tokens[:3], story.tokens[3] + 1, *story.tokens[4:]], BLOCKS)
    logits = logits_in_chunks(Memory(backend, NUM_BLOCKS), changed, [LENGTH], FIRST_WANTED)
    assert not (logits == expected).all(axis=1).any()
