"""What the native library says of a row of logits is what the sampler would have found in it."""

import numpy as np
import pytest

from engine.core.sampling_params import SamplingParams
from engine.execution.sampler import NO_DRAW, Floats, History, draw_token, row_statistics
from kernels.backend import RowStatistics
from tests.kernels.cpu_library import call, instruction_sets

EMPTY = History((), ())
GREEDY = SamplingParams(temperature=0.0)


def of_library(logits: Floats) -> RowStatistics:
    kind = np.dtype([("highest_id", "i8"), ("total", "f8"), ("highest", "f4"), ("is_finite", "i4")])
    result = np.zeros(1, kind)
    call(instruction_sets()[0], "row_statistics", logits, len(logits), result)
    return RowStatistics._make(result[0].item())


@pytest.fixture(params=range(20))
def logits(request: pytest.FixtureRequest) -> Floats:
    values = (np.random.default_rng(request.param).standard_normal(4003) * 6).astype(np.float32)
    return np.round(values) if request.param % 2 else values  # every second row is full of ties


def test_a_greedy_draw_is_the_same_and_its_logprob_within_a_rounding(logits: Floats) -> None:
    mine, theirs = draw_token(logits, GREEDY, EMPTY, of_library(logits)), draw_token(logits, GREEDY, EMPTY)
    assert mine.token_id == theirs.token_id == logits.argmax()
    assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-6)  # the sums' relative error, 2e-7, and float32


def test_a_drawn_token_does_not_depend_on_who_made_the_statistics(logits: Floats) -> None:
    sampling = SamplingParams(temperature=0.9, top_p=0.9, seed=7)
    assert (
        draw_token(logits, sampling, EMPTY, of_library(logits)).token_id == draw_token(logits, sampling, EMPTY).token_id
    )


def test_a_greedy_draw_has_one_logprob_whatever_path_it_takes(logits: Floats) -> None:
    """A bias on a token that is not drawn leaves the short path, and must change no bit of what is recorded."""
    statistics = of_library(logits)
    lowest = int(logits.argmin())
    biased = draw_token(logits, GREEDY, EMPTY._replace(logit_bias=((lowest, -1.0),)), statistics)
    assert biased == draw_token(logits, GREEDY, EMPTY, statistics)


def test_a_row_that_is_not_finite_draws_nothing(logits: Floats) -> None:
    logits[17] = np.nan
    assert draw_token(logits, GREEDY, EMPTY, of_library(logits)) == NO_DRAW
    assert row_statistics(logits).is_finite == 0
