"""The native sampler draws the reference's tokens, and the same bits on every instruction set and in any company.

The two may part where the uniform number, or the share of top_p, falls between two tokens that float32 weights cannot
tell apart; the tests say how often that may be.
"""

from array import array
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kernels.sampling import Draw, DrawParameters, DrawRow, ids_of
from tests.kernels.cpu_library import instruction_sets
from tests.kernels.random_draws import SHAPES, random_logits, random_row
from tests.kernels.samplers import REFERENCE, Floats, native_sampler

SETS = instruction_sets()
LENGTHS = (1, 5, 16, 40, 1000, 1024, 4003, 20_000)


def random_steps(num_rows: int) -> Iterator[tuple[Floats, list[DrawRow]]]:
    generator = np.random.default_rng(11)
    for length in LENGTHS:
        for shape in SHAPES:
            rows = [random_row(generator, length) for _ in range(num_rows)]
            yield random_logits(generator, shape, num_rows, length), rows


def test_the_native_sampler_draws_the_tokens_of_the_reference() -> None:
    num_draws = num_different = 0
    for logits, rows in random_steps(25):
        for native, expected in zip(
            native_sampler(SETS[0]).draw(logits, rows), REFERENCE.draw(logits, rows), strict=True
        ):
            assert native.is_finite == expected.is_finite
            num_draws += 1
            if native.token_id != expected.token_id:
                num_different += 1
            else:
                assert native.logprob == pytest.approx(expected.logprob, rel=1e-6, abs=2e-6)
            assert_alike(native, expected)
    assert num_draws > 1_000
    assert num_different <= num_draws // 1_000


def assert_alike(native: Draw, expected: Draw) -> None:
    """The sums behind the log-probabilities differ by less than 1e-6, so that equals may be listed in another order."""
    ours, theirs = (dict(draw.top_logprobs) for draw in (native, expected))
    assert len(ours) == len(theirs)
    assert sorted(ours.values()) == pytest.approx(sorted(theirs.values()), rel=1e-6, abs=2e-6)


def test_every_instruction_set_draws_the_same_bits() -> None:
    if len(SETS) < 2:
        pytest.skip("only the portable library runs on this processor: nothing to compare")
    for logits, rows in random_steps(12):
        first, *others = [native_sampler(name).draw(logits, rows) for name in SETS]
        assert all(other == first for other in others)


def test_a_draw_is_the_same_alone_in_company_and_on_other_threads() -> None:
    for logits, rows in random_steps(12):
        in_company = native_sampler(SETS[0], 2).draw(logits, rows)
        backwards = native_sampler(SETS[0], 3).draw(logits[::-1].copy(), rows[::-1])
        alone = [
            native_sampler(SETS[0]).draw(of_row[None].copy(), [row])[0]
            for of_row, row in zip(logits, rows, strict=True)
        ]
        assert in_company == alone == backwards[::-1]


@pytest.mark.parametrize("draw", [REFERENCE.draw, native_sampler(SETS[0]).draw], ids=["reference", "native"])
def test_only_allowed_tokens_are_drawn_and_none_where_none_is(draw: Callable[..., list[Draw]]) -> None:
    logits = random_logits(np.random.default_rng(2), "wide", 1, 100)
    words = array("I", [0, 0b1001])  # tokens 32 and 35; none from 64 on, which has no word
    for parameters in (DrawParameters(), DrawParameters(temperature=0), DrawParameters(top_k=50, top_p=0.9)):
        rows = [DrawRow(parameters, position, allowed=words) for position in range(30)]
        assert {drawn.token_id for drawn in draw(np.tile(logits, (30, 1)), rows)} <= {32, 35}
    assert not draw(logits, [DrawRow(DrawParameters(), 0, allowed=array("I", [0]))])[0].is_finite
    (banned,) = draw(logits, [DrawRow(DrawParameters(), 0, banned=ids_of([32]), allowed=words)])
    assert banned.token_id == 35


@pytest.mark.parametrize(
    "parameters",
    [
        DrawParameters(),
        DrawParameters(temperature=1.7, top_p=0.8),
        DrawParameters(temperature=0.6, top_k=50),
        DrawParameters(min_p=0.02),
    ],
)
def test_tokens_are_drawn_as_often_as_their_probabilities_say(parameters: DrawParameters) -> None:
    """Over 20,000 positions of one seed, against probabilities worked out here; χ² of the 12 likeliest and the rest."""
    num_draws, length = 20_000, 300
    logits = random_logits(np.random.default_rng(5), "narrow", 1, length)[0]
    weights = np.exp((logits.astype(np.float64) - float(logits.max())) / parameters.temperature)
    order = np.argsort(-weights, kind="stable")
    kept = weights[order] >= parameters.min_p
    if parameters.top_k:
        kept &= np.arange(length) < parameters.top_k
    passed = np.cumsum(weights[order]) - weights[order]
    kept &= passed < parameters.top_p * weights.sum() if parameters.top_p < 1 else True
    probabilities = np.zeros(length)
    probabilities[order[kept]] = weights[order[kept]] / weights[order[kept]].sum()

    rows = [DrawRow(parameters, position) for position in range(num_draws)]
    drawn = native_sampler(SETS[0]).draw(np.tile(logits, (num_draws, 1)), rows)
    counts = np.bincount([draw.token_id for draw in drawn], minlength=length)
    assert counts[probabilities == 0].sum() == 0
    expected = np.append(probabilities[order[:12]], probabilities[order[12:]].sum()) * num_draws
    observed = np.append(counts[order[:12]], counts[order[12:]].sum())
    likely = expected > 5
    chi_squared = float(((observed - expected)[likely] ** 2 / expected[likely]).sum())
    assert chi_squared < 32.9  # 12 degrees of freedom: more in 1 of 1,000 seeds


def test_a_greedy_draw_has_one_logprob_whatever_path_it_takes() -> None:
    """A bias on a token that is not drawn leaves the short path, and must change no bit of what is recorded."""
    logits = random_logits(np.random.default_rng(3), "wide", 1, 4003)
    greedy = DrawParameters(temperature=0.0)
    on_the_lowest = DrawParameters(temperature=0.0, biased=ids_of([int(logits.argmin())]), biases=array("f", [-1.0]))
    draws = native_sampler(SETS[0])
    assert draws.draw(logits, [DrawRow(greedy, 0)]) == draws.draw(logits, [DrawRow(on_the_lowest, 0)])


@pytest.mark.parametrize("count", [1, 2, 20, 999, 1003])
def test_the_highest_logits_are_listed_in_order_ties_by_lowest_id(count: int) -> None:
    logits = np.round(np.random.default_rng(count).standard_normal((1, 1003)) * 4).astype(np.float32)
    parameters = DrawParameters(temperature=0.0, num_logprobs=count)
    expected = np.argsort(-logits[0], kind="stable")[:count]
    for name in SETS:
        (drawn,) = native_sampler(name).draw(logits, [DrawRow(parameters, 0)])
        assert [token_id for token_id, _ in drawn.top_logprobs] == expected.tolist()
