"""Statistics and the likeliest tokens in the interpreter, against the reference's own definitions."""

import numpy as np
import pytest
import torch

from kernels.cuda.head import CHUNK, head, statistics
from kernels.cuda.row_flags import CANDIDATES
from kernels.cuda.top_k import flagged_top_k
from kernels.cuda.weights import pack
from kernels.reference_sampling import _likeliest
from tests.kernels.cuda.stored_matrices import stored_matrix

VOCAB_SIZE = 2 * CHUNK + 77


def _logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(1)) * 4


def _statistics(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = logits.shape[0]
    best = torch.full((rows,), -1, dtype=torch.int32)
    highest, log_sum = torch.full((rows,), torch.nan), torch.full((rows,), torch.nan)
    statistics(logits, best, highest, log_sum)
    return best, highest, log_sum


def _top(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = logits.shape[0]
    values, ids = torch.full((rows, k), torch.nan), torch.full((rows, k), -1, dtype=torch.int32)
    flags = torch.full((rows,), CANDIDATES, dtype=torch.int32)
    raw = torch.full((rows, k), torch.nan)
    flagged_top_k(logits, logits, flags, CANDIDATES, values, ids, raw)
    assert torch.equal(raw, logits.gather(1, ids.long()))
    return values, ids


def test_statistics_are_what_float64_says() -> None:
    logits = _logits(3)
    best, highest, log_sum = _statistics(logits)
    assert torch.equal(best.long(), logits.argmax(dim=1))
    assert torch.equal(highest, logits.max(dim=1).values)
    assert torch.allclose(log_sum.double(), torch.logsumexp(logits.double(), dim=1), rtol=0, atol=2e-6)


@pytest.mark.parametrize("places", [(5, 9), (9, CHUNK + 2), (CHUNK - 1, CHUNK), (0, VOCAB_SIZE - 1)])
def test_the_lowest_of_equal_ids_is_best(places: tuple[int, int]) -> None:
    logits = _logits(1)
    logits[0, list(places)] = 100.0
    assert _statistics(logits)[0].tolist() == [places[0]]
    assert _top(logits, 2)[1].tolist() == [list(places)]


def test_zero_and_minus_zero_are_equal() -> None:
    logits = torch.full((1, VOCAB_SIZE), -1.0)
    logits[0, 7], logits[0, 9] = -0.0, 0.0
    assert _statistics(logits)[0].tolist() == [7]
    assert _top(logits, 2)[1].tolist() == [[7, 9]]


def test_very_high_and_very_low_rows_keep_their_sum() -> None:
    logits = torch.stack([_logits(1)[0] - 1e4, _logits(1)[0] + 1e4])
    _, _, log_sum = _statistics(logits)
    assert torch.allclose(log_sum.double(), torch.logsumexp(logits.double(), dim=1), rtol=1e-7, atol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_logit_that_is_no_number_shows_in_its_own_row_alone(bad: float) -> None:
    logits = _logits(3)
    logits[1, CHUNK + 3] = bad
    best, _, log_sum = _statistics(logits)
    assert torch.isfinite(log_sum).tolist() == [True, False, True]
    assert 0 <= int(best[1]) < VOCAB_SIZE


@pytest.mark.parametrize("k", [1, 5, 20])
def test_the_likeliest_are_the_references(k: int) -> None:
    logits = (_logits(3) * 2).round()  # many ties
    values, ids = _top(logits, k)
    for row, of_row in enumerate(logits.numpy()):
        expected = _likeliest(of_row, np.arange(VOCAB_SIZE), k)
        assert ids[row].tolist() == expected.tolist()
        assert values[row].tolist() == of_row[expected].tolist()


def test_a_row_alone_has_the_bits_it_has_in_company() -> None:
    logits = _logits(3)
    together = _statistics(logits)
    for row in range(3):
        alone = _statistics(logits[row : row + 1].clone())
        assert all(torch.equal(a[0], b[row]) for a, b in zip(alone, together, strict=True))


def test_logits_are_the_product_with_the_head() -> None:
    stored = stored_matrix("Q8_0", 70, 64)
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    logits = torch.empty(2, 70)
    head(x, pack([stored], "cpu"), logits)
    exact = x.double() @ torch.from_numpy(stored.float32()).bfloat16().double().T
    assert torch.allclose(logits.double(), exact, rtol=0, atol=1e-5)
