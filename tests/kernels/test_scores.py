"""What rows say of tokens, by each backend: as the reference says of the same logits, whatever else is computed."""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from kernels.backend import Backend
from kernels.reference import ReferenceBackend
from kernels.reference_sampling import draw_token
from kernels.reference_scoring import score_rows
from kernels.sampling import DrawParameters, DrawRow
from kernels.scoring import RowScores
from tests.execution.steps import Memory, Story
from tests.kernels.cpu_library import instruction_sets, loaded
from tests.kernels.tiny_models import GEMMA, SMALL, random_parameters

NUM_TOKENS = 80
TOP = 5
TOKENS = np.random.default_rng(5).integers(0, SMALL.vocab_size, NUM_TOKENS).tolist()
OTHERS = np.random.default_rng(6).integers(0, SMALL.vocab_size, NUM_TOKENS).tolist()


@pytest.fixture(scope="module", params=["reference", "cpu", "cpu-gemma"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Post norms and local layers are what the last one has."""
    if request.param == "reference":
        reference = ReferenceBackend(1)
        reference.load(random_parameters("F32", dataclasses.replace(SMALL, num_layers=1)), 128)
        yield reference
        return
    instruction_sets()
    is_gemma = request.param == "cpu-gemma"
    native = loaded(random_parameters("Q8_0", GEMMA if is_gemma else SMALL, has_norms=is_gemma), max_positions=128)
    yield native
    native.close()


def scores_in_chunks(backend: Backend, ends: Iterable[int], beside: int = 0) -> list[RowScores]:
    """Of each token but the first, the sequence computed up to each of `ends` in turn, others before it in the step."""
    memory, story, other = Memory(backend, 24), Story(TOKENS, range(8)), Story(OTHERS, range(8, 16))
    scores, start = [], 0
    for end in ends:
        company = [other.rows(0, beside, 1)] if beside else []
        memory.step(*company, story.rows(start, end, int(end == NUM_TOKENS)))
        rows = np.arange(beside, beside + min(end, NUM_TOKENS - 1) - start)
        scores.append(backend.score(rows, np.array(TOKENS[start + 1 : end + 1]), TOP))
        start = end
    return scores


def test_scores_are_those_of_the_logits(backend: Backend) -> None:
    memory, story = Memory(backend, 24), Story(TOKENS, range(8))
    logits = memory.step(story.rows(0, NUM_TOKENS, NUM_TOKENS)).logits[:-1]
    expected = score_rows(logits, np.array(TOKENS[1:]), TOP)
    (got,) = scores_in_chunks(backend, [NUM_TOKENS])
    assert np.array_equal(got.ranks, expected.ranks)
    assert np.array_equal(got.top_ids, expected.top_ids)
    np.testing.assert_allclose(got.logprobs, expected.logprobs, atol=2e-6)
    np.testing.assert_allclose(got.top_logprobs, expected.top_logprobs, atol=2e-6)


def test_they_have_the_bits_of_a_draw(backend: Backend) -> None:
    memory, story = Memory(backend, 24), Story(TOKENS, range(8))
    memory.step(story.rows(0, 40, 1))
    drawn = backend.draw([DrawRow(DrawParameters(temperature=0.0, num_logprobs=TOP), 0)])[0]
    memory.step(story.rows(0, 41, 1))
    scores = backend.score(np.array([39]), np.array([drawn.token_id]), TOP)
    assert scores.ranks[0] == 1
    assert float(scores.logprobs[0]) == drawn.logprob
    top = tuple(zip(scores.top_ids[0].tolist(), scores.top_logprobs[0].tolist(), strict=True))
    assert top == drawn.top_logprobs


def test_neither_chunks_nor_company_change_a_bit(backend: Backend) -> None:
    (whole,) = scores_in_chunks(backend, [NUM_TOKENS])
    for ends, beside in (([1, 34, 35, 79, 80], 0), ([80], 7), ([50, 80], 33)):
        parts = scores_in_chunks(backend, ends, beside)
        joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        assert [column.tobytes() for column in joined] == [column.tobytes() for column in whole], (ends, beside)


def test_no_alternatives_are_told_where_none_are_wanted(backend: Backend) -> None:
    Memory(backend, 24).step(Story(TOKENS, range(8)).rows(0, 4, 1))
    scores = backend.score(np.arange(3), np.array(TOKENS[1:4]), 0)
    assert scores.top_ids.shape == scores.top_logprobs.shape == (3, 0)
    assert scores.ranks.all()


def test_all_of_a_vocabulary_can_be_told_in_order() -> None:
    logits = np.array([[0.0, 3.0, 3.0, -1.0]], np.float32)
    scores = score_rows(logits, np.array([2]), 4)
    assert scores.top_ids.tolist() == [[1, 2, 0, 3]], "of equals the lowest id is first"
    assert scores.ranks.tolist() == [2]
    assert scores.logprobs[0] == draw_token(logits[0], DrawRow(DrawParameters(temperature=0.0), 0)).logprob


def test_a_row_that_is_not_finite_is_said_to_be_so() -> None:
    logits = np.array([[0.0, np.nan, 1.0], [0.0, 1.0, 2.0]], np.float32)
    assert score_rows(logits, np.array([0, 2]), 1).ranks.tolist() == [0, 1]
