"""Drawing: each parameter's meaning, ties, and that a draw depends on nothing but its arguments.

Every test runs on the reference and on each instruction set of the native library.
"""

import math
from array import array
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.philox import uniform
from kernels.sampling import NO_DRAW, NO_IDS, Draw, DrawParameters, DrawRow, SeenTokens, ids_of
from tests.kernels.samplers import Floats, Sampler, native_sets, sampler

GREEDY = DrawParameters(temperature=0.0)
NUM_SEEDS = 400

every_sampler = pytest.mark.parametrize("name", ["reference", *native_sets()])


@pytest.fixture(params=["reference", *native_sets()])
def draws(request: pytest.FixtureRequest) -> Sampler:
    return sampler(request.param)


def row(*logits: float) -> Floats:
    return np.array(logits, dtype=np.float32)


def from_probabilities(*probabilities: float) -> Floats:
    logits: Floats = np.log(np.array(probabilities)).astype(np.float32)
    return logits


def biased(parameters: DrawParameters, *pairs: tuple[int, float]) -> DrawParameters:
    ids, biases = zip(*pairs, strict=True)
    return replace(parameters, biased=ids_of(ids), biases=array("f", biases))


def draw(
    draws: Sampler,
    logits: Floats,
    parameters: DrawParameters,
    prompt: tuple[int, ...] = (),
    output: tuple[int, ...] = (),
    banned: tuple[int, ...] = (),
) -> Draw:
    """The draw that follows `output`."""
    seen = SeenTokens(prompt, output) if parameters.has_penalties else None
    (drawn,) = draws.draw(logits[None], [DrawRow(parameters, len(output), seen, ids_of(banned))])
    return drawn


def drawn_tokens(
    draws: Sampler, logits: Floats, parameters: DrawParameters, banned: "array[int]" = NO_IDS
) -> Counter[int]:
    """Tokens over 400 seeds."""
    rows = [DrawRow(replace(parameters, seed=seed), 0, None, banned) for seed in range(NUM_SEEDS)]
    return Counter([drawn.token_id for drawn in draws.draw(np.tile(logits, (NUM_SEEDS, 1)), rows)])


# ── greedy ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_temperature_0_takes_the_likeliest_and_the_lowest_id_among_equals(draws: Sampler) -> None:
    assert draw(draws, row(1, 3, 3, 2), GREEDY).token_id == 1


def test_a_bias_can_make_and_forbid_a_token(draws: Sampler) -> None:
    logits = row(1, 3, 2)
    assert draw(draws, logits, biased(GREEDY, (0, 5.0))).token_id == 0
    assert draw(draws, logits, biased(GREEDY, (1, -100.0))).token_id == 2


def test_a_bias_outside_the_vocabulary_is_passed_over(draws: Sampler) -> None:
    assert draw(draws, row(1, 3), biased(GREEDY, (-1, 9.0), (2, 9.0))).token_id == 1


def test_banned_tokens_are_not_drawn_however_likely(draws: Sampler) -> None:
    assert draw(draws, row(1, 9, 8, 0), GREEDY, banned=(1, 2, 99)).token_id == 0
    assert drawn_tokens(draws, row(1, 9, 8, 0), DrawParameters(), ids_of([1, 2, 99, -1])).keys() == {0, 3}


# ── penalties, by hand ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_seen_tokens(draws: Sampler) -> None:
    sampling = replace(GREEDY, repetition_penalty=2.0)
    # prompt 0 and output 1 are seen: 4/2 = 2, -1*2 = -2
    assert draw(draws, row(4.0, -1.0, 2.1), sampling, (0,), (1,)).token_id == 2
    assert draw(draws, row(4.0, -1.0, -1.9, -3.0), biased(sampling, (0, -4.5)), (0, 0), (1,)).token_id == 0
    assert draw(draws, row(-4.0, -1.0, -1.9), sampling, (), (1,)).token_id == 2


def test_the_frequency_penalty_counts_output_tokens_only(draws: Sampler) -> None:
    sampling = replace(GREEDY, frequency_penalty=0.5)
    logits = row(3.0, 2.0)
    assert draw(draws, logits, sampling, (0, 0, 0, 0), (0,)).token_id == 0  # 2.5 against 2
    assert draw(draws, logits, sampling, (), (0, 0, 0)).token_id == 1  # 1.5 against 2


def test_the_presence_penalty_is_the_same_for_one_and_for_many(draws: Sampler) -> None:
    sampling = replace(GREEDY, presence_penalty=0.9)
    logits = row(3.0, 2.0)
    assert draw(draws, logits, sampling, (), (0,) * 50).token_id == 0  # 2.1 against 2
    assert draw(draws, logits, replace(sampling, presence_penalty=1.1), (), (0,)).token_id == 1


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_top_k_keeps_the_likeliest_k_and_the_lowest_ids_among_equals(draws: Sampler) -> None:
    logits = row(0, 1, 1, 1, 0.5)
    assert drawn_tokens(draws, logits, DrawParameters(top_k=2)).keys() == {1, 2}
    assert drawn_tokens(draws, logits, DrawParameters(top_k=1)).keys() == {1}


def test_top_p_keeps_the_fewest_that_reach_it(draws: Sampler) -> None:
    logits = from_probabilities(0.1, 0.5, 0.25, 0.15)
    assert drawn_tokens(draws, logits, DrawParameters(top_p=0.45)).keys() == {1}
    assert drawn_tokens(draws, logits, DrawParameters(top_p=0.7)).keys() == {1, 2}
    assert drawn_tokens(draws, logits, DrawParameters(top_p=0.8)).keys() == {1, 2, 3}
    assert drawn_tokens(draws, logits, DrawParameters(top_p=1.0)).keys() == {0, 1, 2, 3}


def test_top_p_is_a_share_of_what_top_k_left(draws: Sampler) -> None:
    logits = from_probabilities(0.1, 0.5, 0.25, 0.15)
    # of 0.5 + 0.25 the first has two thirds
    assert drawn_tokens(draws, logits, DrawParameters(top_k=2, top_p=0.6)).keys() == {1}
    assert drawn_tokens(draws, logits, DrawParameters(top_k=2, top_p=0.7)).keys() == {1, 2}


def test_top_p_sorts_as_far_as_it_must(draws: Sampler) -> None:
    """A flat row of 20,000: far more than are sorted at first."""
    logits = np.zeros(20_000, dtype=np.float32)
    tokens = drawn_tokens(draws, logits, DrawParameters(top_p=0.5))
    assert max(tokens) < 10_000  # equal weights: the lowest ids are kept
    assert max(tokens) > 9_000


def test_min_p_drops_what_is_unlikely_beside_the_likeliest(draws: Sampler) -> None:
    logits = from_probabilities(0.6, 0.25, 0.1, 0.05)
    assert drawn_tokens(draws, logits, DrawParameters(min_p=0.2)).keys() == {0, 1}
    assert drawn_tokens(draws, logits, DrawParameters(min_p=1.0)).keys() == {0}


def test_the_temperature_sharpens_and_flattens(draws: Sampler) -> None:
    logits = from_probabilities(0.7, 0.2, 0.1)
    shares = [drawn_tokens(draws, logits, DrawParameters(temperature=t))[0] / 400 for t in (0.5, 1.0, 3.0)]
    expected = [0.49 / 0.54, 0.7, 0.7 ** (1 / 3) / (0.7 ** (1 / 3) + 0.2 ** (1 / 3) + 0.1 ** (1 / 3))]
    assert shares == pytest.approx(expected, abs=0.06)


def test_a_tiny_temperature_is_greedy_and_no_overflow(draws: Sampler) -> None:
    assert drawn_tokens(draws, row(1, 3, 2), DrawParameters(temperature=1e-30)).keys() == {1}


def test_extreme_penalties_still_draw_a_token(draws: Sampler) -> None:
    sampling = DrawParameters(repetition_penalty=1e-300)
    assert draw(draws, row(1, 3, 2), sampling, (0, 1, 2)).is_finite


# ── log-probabilities ────────────────────────────────────────────────────────────────────────────────────────────────


def test_logprobs_are_those_of_the_unmodified_logits(draws: Sampler) -> None:
    logits = from_probabilities(0.5, 0.3, 0.2)
    drawn = draw(draws, logits, biased(DrawParameters(temperature=0.3, num_logprobs=2), (2, 50.0)))
    assert drawn.token_id == 2
    assert drawn.logprob == pytest.approx(math.log(0.2), abs=1e-6)
    assert drawn.logprob == float(np.float32(drawn.logprob))
    assert [token_id for token_id, _ in drawn.top_logprobs] == [0, 1]
    assert drawn.top_logprobs[0][1] == pytest.approx(math.log(0.5), abs=1e-6)


@pytest.mark.parametrize("num_logprobs", [-1, 0])
def test_no_alternatives_are_listed_unless_asked_for(draws: Sampler, num_logprobs: int) -> None:
    assert draw(draws, row(1, 2), replace(GREEDY, num_logprobs=num_logprobs)).top_logprobs == ()


def test_equal_alternatives_are_listed_by_id(draws: Sampler) -> None:
    drawn = draw(draws, row(2, 1, 2, 2, 1), replace(GREEDY, num_logprobs=4))
    assert [token_id for token_id, _ in drawn.top_logprobs] == [0, 2, 3, 1]


def test_alternatives_that_are_reported_alike_are_listed_by_id(draws: Sampler) -> None:
    """The second logit is a little higher than the first; far below the likeliest, both round to one number."""
    drawn = draw(draws, row(100.0, 1.0, 1.0 + 2.0**-23), replace(GREEDY, num_logprobs=2))
    assert [token_id for token_id, _ in drawn.top_logprobs] == [0, 1]


def test_no_more_alternatives_are_listed_than_there_are_tokens(draws: Sampler) -> None:
    assert len(draw(draws, row(1, 2, 3), replace(GREEDY, num_logprobs=20)).top_logprobs) == 3


# ── what cannot be drawn from ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sampling", [GREEDY, DrawParameters(num_logprobs=3)])
def test_logits_that_are_not_finite_draw_nothing(draws: Sampler, poison: float, sampling: DrawParameters) -> None:
    assert draw(draws, row(1, poison, 2), sampling) == NO_DRAW


@pytest.mark.parametrize("sampling", [GREEDY, DrawParameters()])
def test_a_row_with_every_token_banned_draws_nothing(draws: Sampler, sampling: DrawParameters) -> None:
    assert draw(draws, row(1, 2), sampling, banned=(0, 1)) == NO_DRAW


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

PARAMETERS = st.builds(
    DrawParameters,
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


@every_sampler
@settings(max_examples=80, deadline=None)
@given(logits=LOGITS, parameters=PARAMETERS, prompt=TOKENS, output=TOKENS)
def test_a_draw_is_a_function_of_its_arguments(
    name: str, logits: Floats, parameters: DrawParameters, prompt: list[int], output: list[int]
) -> None:
    before, draws = logits.copy(), sampler(name)
    drawn = draw(draws, logits, parameters, tuple(prompt), tuple(output))
    assert drawn == draw(draws, logits.copy(), replace(parameters), tuple(prompt), tuple(output))
    assert np.array_equal(before, logits)
    check(drawn, logits, parameters)


def check(drawn: Draw, logits: Floats, parameters: DrawParameters) -> None:
    assert drawn.is_finite
    assert 0 <= drawn.token_id < len(logits)
    exact = logits.astype(np.float64)
    exact -= exact.max() + np.log(np.exp(exact - exact.max()).sum())
    assert drawn.logprob == pytest.approx(exact[drawn.token_id], abs=1e-4)
    assert len(drawn.top_logprobs) == max(0, min(parameters.num_logprobs, len(logits)))
    assert list(drawn.top_logprobs) == sorted(drawn.top_logprobs, key=lambda pair: (-pair[1], pair[0]))


@every_sampler
@settings(max_examples=60, deadline=None)
@given(logits=LOGITS, seed=st.integers(0, 2**64 - 1))
def test_a_plain_draw_is_the_inverse_of_the_cumulative_distribution(name: str, logits: Floats, seed: int) -> None:
    """Against a second, plainer way to do it; what float32 cannot tell apart may go either way."""
    token_id = draw(sampler(name), logits, DrawParameters(seed=seed), (), (1, 2, 3)).token_id
    cumulative = np.cumsum(np.exp(logits.astype(np.float64) - float(logits.max())))
    target = uniform(seed, 3) * cumulative[-1]
    slack = 1e-6 * cumulative[-1]
    assert cumulative[token_id] > target - slack
    assert token_id == 0 or cumulative[token_id - 1] <= target + slack


# ── what penalties look at ───────────────────────────────────────────────────────────────────────────────────────────


@given(prompt=TOKENS, output=TOKENS)
def test_seen_tokens_are_distinct_and_counted_in_the_output(prompt: list[int], output: list[int]) -> None:
    seen = SeenTokens(prompt)
    for token_id in output:
        seen.take(token_id)
    assert sorted(seen.ids) == sorted({*prompt, *output})
    assert list(seen.counts) == [output.count(token_id) for token_id in seen.ids]
