"""The cuda backend asked about a prompt's rows, in the interpreter: as the reference says of the logits it computes."""

import numpy as np

from kernels.cuda.backend import CudaBackend
from kernels.decoder import DecoderShape
from kernels.reference_scoring import score_rows
from tests.execution.steps import Memory, Story
from tests.kernels.tiny_models import random_parameters

SHAPE = DecoderShape(1, 64, 96, 4, 2, 16, 120, 1e-5)
TOKENS = [position * 37 % 120 for position in range(9)]


def test_scores_are_those_of_the_logits_whatever_the_chunks() -> None:
    backend = CudaBackend()
    backend.load(random_parameters("Q8_0", SHAPE, has_bias=True, has_norms=True), 512)
    memory, story = Memory(backend, 4), Story(TOKENS, (3, 1))
    logits = memory.step(story.rows(0, 9, 9)).logits[:-1]
    expected = score_rows(logits, np.array(TOKENS[1:]), 3)
    memory.step(story.rows(0, 9, 1))
    whole = backend.score(np.arange(8), np.array(TOKENS[1:]), 3)
    assert np.array_equal(whole.ranks, expected.ranks)
    assert np.array_equal(whole.top_ids, expected.top_ids)
    np.testing.assert_allclose(whole.logprobs, expected.logprobs, atol=1e-5)
    np.testing.assert_allclose(whole.top_logprobs, expected.top_logprobs, atol=1e-5)
    memory.step(story.rows(0, 4))
    first = backend.score(np.arange(4), np.array(TOKENS[1:5]), 3)
    memory.step(Story(TOKENS[::-1], (2,)).rows(0, 2), story.rows(4, 9, 1))
    second = backend.score(np.arange(2, 6), np.array(TOKENS[5:]), 3)
    for left, right, both in zip(first, second, whole, strict=True):
        assert np.concatenate([left, right]).tobytes() == both.tobytes()
