"""A draw from candidates is the draw from all logits, or none: whatever is asked, and however a device has added up."""

from array import array
from dataclasses import replace

import numpy as np
import pytest

from kernels.cuda.candidate_draws import Chosen, Found, choose, sum_error
from kernels.cuda.draw_requests import MOST_CANDIDATES, requests_of
from kernels.cuda.row_flags import CANDIDATES, CHANGED, TOP, WHOLE
from kernels.philox import uniform
from kernels.reference_sampling import _adjusted, draw_token
from kernels.sampling import DrawParameters, DrawRow, SeenTokens, ids_of
from tests.kernels.random_draws import SHAPES, random_logits, random_row
from tests.kernels.samplers import Floats

VOCAB_SIZE = 3000


def found_by_a_device(logits: Floats, row: DrawRow, error: float) -> Found:
    """Sums wrong by a share of `error`, as another order of additions makes them."""
    adjusted = _adjusted(logits, row)
    width = requests_of([row], len(logits)).width or 1
    ids = np.lexsort((np.arange(len(logits)), -adjusted))[:width]
    values = adjusted[ids]
    parameters = row.parameters
    weights = np.exp((adjusted.astype(np.float64) - float(values[0])) / (parameters.temperature or 1.0))
    number = uniform(parameters.seed, row.position)
    smallest = max(parameters.min_p, float(np.finfo(np.float64).tiny))
    kept = np.where(weights >= smallest, weights, 0.0)
    total = float(kept.sum()) * (1 + error)
    if (np.abs(weights - smallest) <= smallest * 2.0**-40).any():
        return Found(values, ids, logits[ids], 0, 0.0, np.nan, np.nan, number)
    target = number * total
    sums = np.cumsum(kept) * (1 - error)
    token_id = min(int(np.searchsorted(sums, target, side="right")), len(logits) - 1)
    before = sums[token_id - 1] if token_id else 0.0
    margin = min(target - before, sums[token_id] - target) / total
    return Found(values, ids, logits[ids], token_id, float(logits[token_id]), margin, total, number)


@pytest.mark.parametrize("share", [-0.24, 0.24], ids=["sums too small", "sums too large"])
def test_whatever_is_asked_the_token_is_that_of_all_logits(share: float) -> None:
    generator = np.random.default_rng(3)
    drawn = lacking = 0
    for shape in SHAPES:
        rows = [random_row(generator, VOCAB_SIZE) for _ in range(60)]
        for logits, row in zip(random_logits(generator, shape, len(rows), VOCAB_SIZE), rows, strict=True):
            expected = draw_token(logits, row)
            if not expected.is_finite:
                continue
            chosen = choose(row, found_by_a_device(logits, row, share * sum_error(VOCAB_SIZE)), VOCAB_SIZE)
            lacking += chosen is None
            drawn += chosen is not None
            if chosen is not None:
                assert chosen == Chosen(expected.token_id, float(logits[expected.token_id])), (shape, row.parameters)
    assert drawn > 300
    assert lacking > 10  # large top_k and flat distributions cut by top_p are among them


@pytest.mark.parametrize(
    "parameters",
    [
        DrawParameters(),
        DrawParameters(temperature=0.7, min_p=0.05),
        DrawParameters(temperature=1.3, top_k=50),
        DrawParameters(temperature=0.8, top_k=40, top_p=0.95),
        DrawParameters(temperature=0.6, top_p=0.9),
    ],
    ids=["as it is", "min_p", "top_k", "top_k and top_p", "top_p"],
)
def test_what_clients_ask_for_needs_no_other_logits(parameters: DrawParameters) -> None:
    """On logits as a language model gives them."""
    logits = random_logits(np.random.default_rng(1), "zipf", 1, VOCAB_SIZE)[0] * np.float32(1.5)
    for seed in range(200):
        row = DrawRow(replace(parameters, seed=seed), 0)
        chosen = choose(row, found_by_a_device(logits, row, 1e-14), VOCAB_SIZE)
        assert chosen is not None
        assert chosen.token_id == draw_token(logits, row).token_id


def test_a_number_next_to_a_boundary_is_left_to_all_logits() -> None:
    logits = random_logits(np.random.default_rng(1), "wide", 1, VOCAB_SIZE)[0]
    row = DrawRow(DrawParameters(), 0)
    found = found_by_a_device(logits, row, 0.0)
    assert choose(row, found, VOCAB_SIZE) is not None
    assert choose(row, found._replace(margin=sum_error(VOCAB_SIZE)), VOCAB_SIZE) is None


def test_a_token_as_likely_as_the_last_candidate_may_be_the_drawn_one() -> None:
    """Of several equal ones top_k keeps the lowest ids, which need not be among so few candidates."""
    logits = np.zeros(VOCAB_SIZE, np.float32)
    row = DrawRow(DrawParameters(temperature=1e20, top_k=5), 0)
    logits[::2] = 1.0  # at this temperature as likely as the others
    assert choose(row, found_by_a_device(logits, row, 0.0), VOCAB_SIZE) is None


def test_a_row_is_asked_about_for_what_it_needs_alone() -> None:
    greedy, sampled = DrawParameters(temperature=0.0), DrawParameters(top_k=40)
    rows = [
        DrawRow(greedy, 0),
        DrawRow(replace(greedy, num_logprobs=3), 0),
        DrawRow(greedy, 0, banned=ids_of([7, -1, VOCAB_SIZE])),
        DrawRow(sampled, 0),
        DrawRow(DrawParameters(), 0, allowed=array("I", [5])),
        DrawRow(replace(greedy, biased=ids_of([3, 3]), biases=array("f", [1.0, 2.0])), 0),
    ]
    requests = requests_of(rows, VOCAB_SIZE)
    assert requests.flags.tolist() == [0, TOP, CANDIDATES | CHANGED, CANDIDATES, CANDIDATES | CHANGED | WHOLE, 0]
    assert requests.mask_of.tolist() == [-1, -1, -1, -1, 0, -1]
    assert requests.entries[:, :2].tolist() == [[2, 7]]
    assert requests.refused == {5: "logit_bias"}
    assert requests.width == MOST_CANDIDATES  # of 41 that are wanted: few widths are compiled
    assert requests_of(rows[:3], VOCAB_SIZE).width == 1


def test_a_token_is_changed_once_by_all_that_changes_it() -> None:
    parameters = DrawParameters(
        temperature=0.0, repetition_penalty=1.1, biased=ids_of([5, 9]), biases=array("f", [1.5, 2.5])
    )
    row = DrawRow(parameters, 0, SeenTokens([9, 4], [4, 4, 6]), ids_of([5, 6]))
    entries = requests_of([row], 20).entries
    assert entries[:, 1:3].tolist() == [[4, 2], [5, -1], [6, 1], [9, 0]]
    assert entries[:, 3].view(np.float32).tolist() == [0.0, -np.inf, -np.inf, 2.5]
