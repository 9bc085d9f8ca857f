"""Draws by the device are the reference's, token for token, in any company, and say which rows were read whole."""

from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from kernels.cuda.draw_answers import answer
from kernels.cuda.draws import DeviceDraws, leaving
from kernels.cuda.head import statistics
from kernels.cuda.logit_changes import CHUNK
from kernels.cuda.staging import Staging
from kernels.reference_sampling import draw_token
from kernels.sampling import NO_DRAW, Draw, DrawParameters, DrawRow, SeenTokens, ids_of
from tests.kernels.random_draws import random_logits, random_row
from tests.kernels.samplers import Floats

CPU = torch.device("cpu")
VOCAB_SIZE = CHUNK + 90
OF_STEP = ("best", "highest", "log_sum")


def drawn(logits: Floats, rows: Sequence[DrawRow]) -> tuple[list[Draw], Counter[str]]:
    """With the reasons why rows were read whole."""
    on_device = torch.from_numpy(logits)
    kinds = {
        name: ((len(rows),), dtype) for name, dtype in zip(OF_STEP, (torch.int32, *[torch.float32] * 2), strict=True)
    }
    left = Staging({**kinds, **leaving(len(rows))}, CPU)
    statistics(on_device, *(left.device[name] for name in OF_STEP))
    asked = DeviceDraws(logits.shape[1], CPU).ask(rows, on_device, left.device)
    left.download()
    read_back: Counter[str] = Counter()
    return answer(asked, left.host, lambda places: logits[places], read_back), read_back


def assert_the_references(draws: Sequence[Draw], logits: Floats, rows: Sequence[DrawRow]) -> None:
    """Log-probabilities have the device's own logarithm."""
    for draw, of_row, row in zip(draws, logits, rows, strict=True):
        expected = draw_token(of_row, row)
        assert (draw.is_finite, draw.token_id) == (expected.is_finite, expected.token_id), row.parameters
        assert draw.logprob == pytest.approx(expected.logprob, abs=5e-6)
        ours, theirs = dict(draw.top_logprobs), dict(expected.top_logprobs)
        assert sorted(ours.values()) == pytest.approx(sorted(theirs.values()), abs=5e-6)


def test_each_way_gives_the_references_token() -> None:
    vocabulary = VOCAB_SIZE
    mask = array("I", [0, 0b1001] + [0] * 126 + [0x80000001])  # 32, 35, and two of the last chunk, which ends early
    greedy = DrawParameters(temperature=0.0)
    biased = DrawParameters(temperature=0.0, biased=ids_of([5, vocabulary + 3]), biases=array("f", [30.0, 99.0]))
    rows = [
        DrawRow(DrawParameters(seed=1), 0),
        DrawRow(DrawParameters(seed=2, temperature=0.7, min_p=0.02), 1, banned=ids_of([vocabulary - 1, vocabulary])),
        DrawRow(DrawParameters(seed=3, temperature=0.4), 2, allowed=mask),
        DrawRow(DrawParameters(temperature=0.0, repetition_penalty=1.3), 4, SeenTokens([4, 5], range(40, 90))),
        DrawRow(DrawParameters(seed=9, presence_penalty=1.0, frequency_penalty=0.3), 3, SeenTokens((), [7, 7, 9])),
        DrawRow(greedy, 0, allowed=array("I")),
        DrawRow(greedy, 0, banned=ids_of(range(0, vocabulary, 2))),
        DrawRow(biased, 0),
        DrawRow(greedy, 0),
    ]
    logits = random_logits(np.random.default_rng(4), "wide", len(rows), vocabulary)
    draws, read_back = drawn(logits, rows)
    assert_the_references(draws, logits, rows)
    assert draws[5] == NO_DRAW
    assert not read_back


def test_mixtures_of_all_parameters_give_the_references_tokens() -> None:
    generator = np.random.default_rng(12)
    for shape in ("rounded", "zipf"):
        rows = [random_row(generator, 200) for _ in range(3)]
        logits = random_logits(generator, shape, len(rows), 200)
        assert_the_references(drawn(logits, rows)[0], logits, rows)


def test_a_draw_is_the_same_alone_and_in_company() -> None:
    generator = np.random.default_rng(2)
    rows = [DrawRow(DrawParameters(seed=seed, num_logprobs=seed), 0) for seed in range(4)]
    logits = random_logits(generator, "wide", len(rows), 300)
    together, _ = drawn(logits, rows)
    for place, row in enumerate(rows):
        assert drawn(logits[place : place + 1].copy(), [row])[0] == [together[place]]


def test_what_the_device_cannot_tell_is_read_whole_and_counted() -> None:
    """Flat logits cut by top_p, and a top_k beyond the candidates."""
    rows = [DrawRow(DrawParameters(seed=1, top_p=0.5), 0), DrawRow(DrawParameters(seed=1, top_k=150), 0)]
    logits = random_logits(np.random.default_rng(4), "flat", 2, 300)
    draws, read_back = drawn(logits, rows)
    assert_the_references(draws, logits, rows)
    assert read_back == {"top_p": 1, "top_k": 1}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_no_number_draws_nothing(bad: float) -> None:
    logits = random_logits(np.random.default_rng(4), "wide", 2, 300)
    logits[0, 7] = bad
    rows = [DrawRow(DrawParameters(seed=1), 0)] * 2
    draws, _ = drawn(logits, rows)
    assert draws[0] == NO_DRAW
    assert_the_references(draws[1:], logits[1:], rows[1:])
