"""The sampler: each parameter's meaning, ties, and that a draw depends on nothing but its arguments."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.sampling_params import SamplingParams
from engine.execution.philox import uniform
from engine.execution.sampler import NO_DRAW, Draw, Floats, History, draw_token

GREEDY = SamplingParams(temperature=0.0)
EMPTY = History((), ())


def row(*logits: float) -> Floats:
    return np.array(logits, dtype=np.float32)


def from_probabilities(*probabilities: float) -> Floats:
    logits: Floats = np.log(np.array(probabilities)).astype(np.float32)
    return logits


def drawn_tokens(logits: Floats, sampling: SamplingParams, history: History = EMPTY) -> Counter[int]:
    """Tokens over 400 seeds."""
    return Counter(draw_token(logits, sampling._replace(seed=seed), history).token_id for seed in range(400))


# ── greedy ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_temperature_0_takes_the_likeliest_and_the_lowest_id_among_equals() -> None:
    assert draw_token(row(1, 3, 3, 2), GREEDY, EMPTY).token_id == 1


def test_a_bias_can_make_and_forbid_a_token() -> None:
    logits = row(1, 3, 2)
    assert draw_token(logits, GREEDY, EMPTY._replace(logit_bias=((0, 5.0),))).token_id == 0
    assert draw_token(logits, GREEDY, EMPTY._replace(logit_bias=((1, -100.0),))).token_id == 2


def test_a_bias_outside_the_vocabulary_is_passed_over() -> None:
    assert draw_token(row(1, 3), GREEDY, EMPTY._replace(logit_bias=((-1, 9.0), (2, 9.0)))).token_id == 1


def test_banned_tokens_are_not_drawn_however_likely() -> None:
    history = EMPTY._replace(banned=(1, 2, 99))
    assert draw_token(row(1, 9, 8, 0), GREEDY, history).token_id == 0
    assert drawn_tokens(row(1, 9, 8, 0), SamplingParams(), history).keys() == {0, 3}


# ── penalties, by hand ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_seen_tokens() -> None:
    sampling = GREEDY._replace(repetition_penalty=2.0)
    # prompt 0 and output 1 are seen: 4/2 = 2, -1*2 = -2
    assert draw_token(row(4.0, -1.0, 2.1), sampling, History((0,), (1,))).token_id == 2
    assert draw_token(row(4.0, -1.0, -1.9, -3.0), sampling, History((0, 0), (1,), ((0, -4.5),))).token_id == 0
    assert draw_token(row(-4.0, -1.0, -1.9), sampling, History((), (1,))).token_id == 2


def test_the_frequency_penalty_counts_output_tokens_only() -> None:
    sampling = GREEDY._replace(frequency_penalty=0.5)
    logits = row(3.0, 2.0)
    assert draw_token(logits, sampling, History((0, 0, 0, 0), (0,))).token_id == 0  # 2.5 against 2
    assert draw_token(logits, sampling, History((), (0, 0, 0))).token_id == 1  # 1.5 against 2


def test_the_presence_penalty_is_the_same_for_one_and_for_many() -> None:
    sampling = GREEDY._replace(presence_penalty=0.9)
    logits = row(3.0, 2.0)
    assert draw_token(logits, sampling, History((), (0,) * 50)).token_id == 0  # 2.1 against 2
    assert draw_token(logits, sampling._replace(presence_penalty=1.1), History((), (0,))).token_id == 1


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_top_k_keeps_the_likeliest_k_and_the_lowest_ids_among_equals() -> None:
    logits = row(0, 1, 1, 1, 0.5)
    assert drawn_tokens(logits, SamplingParams(top_k=2)).keys() == {1, 2}
    assert drawn_tokens(logits, SamplingParams(top_k=1)).keys() == {1}


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    logits = from_probabilities(0.1, 0.5, 0.25, 0.15)
    assert drawn_tokens(logits, SamplingParams(top_p=0.45)).keys() == {1}
    assert drawn_tokens(logits, SamplingParams(top_p=0.7)).keys() == {1, 2}
    assert drawn_tokens(logits, SamplingParams(top_p=0.8)).keys() == {1, 2, 3}
    assert drawn_tokens(logits, SamplingParams(top_p=1.0)).keys() == {0, 1, 2, 3}


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    logits = from_probabilities(0.1, 0.5, 0.25, 0.15)
    # of 0.5 + 0.25 the first has two thirds
    assert drawn_tokens(logits, SamplingParams(top_k=2, top_p=0.6)).keys() == {1}
    assert drawn_tokens(logits, SamplingParams(top_k=2, top_p=0.7)).keys() == {1, 2}


def test_top_p_sorts_as_far_as_it_must() -> None:
    """A flat row of 20,000: far more than are sorted at first."""
    logits = np.zeros(20_000, dtype=np.float32)
    tokens = drawn_tokens(logits, SamplingParams(top_p=0.5))
    assert max(tokens) < 10_000  # equal weights: the lowest ids are kept
    assert max(tokens) > 9_000


def test_min_p_drops_what_is_unlikely_beside_the_likeliest() -> None:
    logits = from_probabilities(0.6, 0.25, 0.1, 0.05)
    assert drawn_tokens(logits, SamplingParams(min_p=0.2)).keys() == {0, 1}
    assert drawn_tokens(logits, SamplingParams(min_p=1.0)).keys() == {0}


def test_the_temperature_sharpens_and_flattens() -> None:
    logits = from_probabilities(0.7, 0.2, 0.1)
    shares = [drawn_tokens(logits, SamplingParams(temperature=t))[0] / 400 for t in (0.5, 1.0, 3.0)]
    expected = [0.49 / 0.54, 0.7, 0.7 ** (1 / 3) / (0.7 ** (1 / 3) + 0.2 ** (1 / 3) + 0.1 ** (1 / 3))]
    assert shares == pytest.approx(expected, abs=0.06)


def test_a_tiny_temperature_is_greedy_and_no_overflow() -> None:
    assert drawn_tokens(row(1, 3, 2), SamplingParams(temperature=1e-30)).keys() == {1}


def test_extreme_penalties_still_draw_a_token() -> None:
    sampling = SamplingParams(repetition_penalty=1e-300)
    assert draw_token(row(1, 3, 2), sampling, History((0, 1, 2), ())).is_finite


# ── log-probabilities ────────────────────────────────────────────────────────────────────────────────────────────────


def test_logprobs_are_those_of_the_unmodified_logits() -> None:
    logits = from_probabilities(0.5, 0.3, 0.2)
    history = EMPTY._replace(logit_bias=((2, 50.0),))
    draw = draw_token(logits, SamplingParams(temperature=0.3, num_logprobs=2), history)
    assert draw.token_id == 2
    assert draw.logprob == pytest.approx(math.log(0.2), abs=1e-6)
    assert draw.logprob == float(np.float32(draw.logprob))
    assert [token_id for token_id, _ in draw.top_logprobs] == [0, 1]
    assert draw.top_logprobs[0][1] == pytest.approx(math.log(0.5), abs=1e-6)


@pytest.mark.parametrize("num_logprobs", [-1, 0])
def test_no_alternatives_are_listed_unless_asked_for(num_logprobs: int) -> None:
    assert draw_token(row(1, 2), GREEDY._replace(num_logprobs=num_logprobs), EMPTY).top_logprobs == ()


def test_equal_alternatives_are_listed_by_id() -> None:
    draw = draw_token(row(2, 1, 2, 2, 1), GREEDY._replace(num_logprobs=4), EMPTY)
    assert [token_id for token_id, _ in draw.top_logprobs] == [0, 2, 3, 1]


# ── what cannot be drawn from ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(num_logprobs=3)])
def test_logits_that_are_not_finite_draw_nothing(poison: float, sampling: SamplingParams) -> None:
    assert draw_token(row(1, poison, 2), sampling, EMPTY) == NO_DRAW


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams()])
def test_a_row_with_every_token_banned_draws_nothing(sampling: SamplingParams) -> None:
    assert draw_token(row(1, 2), sampling, EMPTY._replace(banned=(0, 1))) == NO_DRAW


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

PARAMETERS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.2, 1.0, 1.7]),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
    repetition_penalty=st.floats(0.5, 2.0),
    presence_penalty=st.floats(-2.0, 2.0),
    frequency_penalty=st.floats(-2.0, 2.0),
    seed=st.integers(-(2**63), 2**64 - 1),
    num_logprobs=st.integers(-1, 8),
)
LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=9, max_size=40).map(lambda values: row(*values))
TOKENS = st.lists(st.integers(0, 8), max_size=12)


@settings(max_examples=300, deadline=None)
@given(LOGITS, PARAMETERS, TOKENS, TOKENS)
def test_a_draw_is_a_function_of_its_arguments(
    logits: Floats, sampling: SamplingParams, prompt: list[int], output: list[int]
) -> None:
    before = logits.copy()
    draw = draw_token(logits, sampling, History(prompt, output))
    assert draw == draw_token(logits.copy(), sampling, History(tuple(prompt), tuple(output)))
    assert np.array_equal(before, logits)
    check(draw, logits, sampling)


def check(draw: Draw, logits: Floats, sampling: SamplingParams) -> None:
    assert draw.is_finite
    assert 0 <= draw.token_id < len(logits)
    exact = logits.astype(np.float64)
    exact -= exact.max() + np.log(np.exp(exact - exact.max()).sum())
    assert draw.logprob == pytest.approx(exact[draw.token_id], abs=1e-4)
    assert len(draw.top_logprobs) == max(0, min(sampling.num_logprobs, len(logits)))
    assert list(draw.top_logprobs) == sorted(draw.top_logprobs, key=lambda pair: (-pair[1], pair[0]))


@settings(max_examples=100, deadline=None)
@given(LOGITS, st.integers(0, 2**64 - 1))
def test_a_plain_draw_is_the_inverse_of_the_cumulative_distribution(logits: Floats, seed: int) -> None:
    """Against a second, plainer way to do it."""
    token_id = draw_token(logits, SamplingParams(seed=seed), History((), (1, 2, 3))).token_id
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    target, passed = uniform(seed, 3) * weights.sum(), 0.0
    for candidate, weight in enumerate(weights):
        passed += float(weight)
        if passed > target * (1 + 1e-12):
            assert token_id == candidate
            break
