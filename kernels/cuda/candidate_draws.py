"""A token drawn from what the device has found of a row: the very token that all of its logits would give, or none.

The device's numbers are logits, whose order is exact, and sums of weights, which are some units in the last place from
the reference's. So each way below first shows that neither a token that was not brought nor such a difference can turn
the draw; then it draws as `reference_sampling.py` does, by the same additions in the same order, a few of Python's own
floats instead of arrays. Where nothing can be shown (a flat distribution cut by top_p, a top_k beyond the candidates, a
number next to a boundary) the answer is None, and the host draws from all logits: the same token, only later. It must
not know the device.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.sampling import DrawParameters, DrawRow

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

_LESS = 1 - 2.0**-40  # a weight below this share of another is less than it, whoever has computed the two
_SMALLEST = float(np.finfo(np.float64).tiny)


class Found(NamedTuple):
    """Of one row.

    values       float32 [candidates]: the highest logits after changes, highest first, ties by lowest id
    ids, raw     of these: token ids, unchanged logits
    token_id, token_raw   what a draw from all tokens gives, and its unchanged logit
    margin       share of all weights between that draw and the nearest other token; NaN: unknown
    total        sum of the weights that min_p keeps, the likeliest token's being 1; NaN: unknown
    number       of [0, 1), which its seed and position give
    """

    values: Floats
    ids: NDArray[Any]
    raw: Floats
    token_id: int
    token_raw: float
    margin: float
    total: float
    number: float


class Chosen(NamedTuple):
    """raw: the token's unchanged logit."""

    token_id: int
    raw: float


def choose(row: DrawRow, found: Found, vocab_size: int) -> Chosen | None:
    """The token; None: it cannot be told from this. The highest logit is finite.

    found   with a draw from all tokens where `parameters` may ask for one
    """
    parameters = row.parameters
    if parameters.temperature <= 0.0:
        return Chosen(int(found.ids[0]), float(found.raw[0]))
    if parameters.top_p >= 1.0 and not 0 < parameters.top_k < vocab_size and found.margin > sum_error(vocab_size):
        return Chosen(found.token_id, found.token_raw)
    values = found.values.astype(np.float64)
    weights = np.exp((values - values[0]) / parameters.temperature)
    count = _num_kept(parameters, found, weights, vocab_size)
    if count == 0:
        return None
    return _drawn(found, weights[:count].tolist())


def sum_error(vocab_size: int) -> float:
    """By which share two sums of a row's weights may differ.

    The reference adds one after the other, so a partial sum is wrong by at most vocab_size units of 2^-53, and the
    number that it is compared with by as many; the device's tree is wrong by a few dozen, and each exponential by one
    or two on either side. Twice that.
    """
    return (vocab_size + 256) * 2.0**-51


def _num_kept(parameters: DrawParameters, found: Found, weights: Doubles, vocab_size: int) -> int:
    """How many of the likeliest candidates are the very tokens that min_p, top_k and top_p keep; 0: unknown."""
    smallest = max(parameters.min_p, _SMALLEST)
    count = int(np.count_nonzero(weights >= smallest))
    if not _are_ordered(found, weights, count):
        return 0
    is_whole = len(weights) == vocab_size or bool(weights[-1] < smallest * _LESS)  # all that is kept was brought
    if 0 < parameters.top_k < count and (is_whole or weights[-1] < weights[parameters.top_k - 1] * _LESS):
        count, is_whole = parameters.top_k, True
    if is_whole and parameters.top_p < 1.0:
        by_id = weights[:count][np.argsort(found.ids[:count])]
        return min(count, _nucleus_size(weights[:count], parameters.top_p * float(np.cumsum(by_id)[-1])))
    return count if is_whole else _nucleus_within(parameters, found.total, weights, sum_error(vocab_size))


def _are_ordered(found: Found, weights: Doubles, count: int) -> bool:
    """Equal weights, which the reference orders by id, are of equal logits, which lie so, and not made equal."""
    same_weight = weights[1:count] >= weights[: count - 1]
    return not bool((same_weight & (found.values[1:count] != found.values[: count - 1])).any())


def _nucleus_size(weights: Doubles, wanted: float) -> int:
    """The fewest likeliest whose weights add up to `wanted`."""
    return int(np.searchsorted(np.cumsum(weights), wanted, side="left")) + 1


def _nucleus_within(parameters: DrawParameters, total: float, weights: Doubles, error: float) -> int:
    """The same where not all that is kept was brought, so that the sum of it is known by and large; 0: unknown."""
    if parameters.top_p >= 1.0 or 0 < parameters.top_k < len(weights):
        return 0
    low, high = total * (1 - error), total * (1 + error)
    if parameters.top_k > 0:  # of the top_k likeliest, which are more than the candidates
        low = float(weights.sum()) * (1 - error)
    if not low <= high:
        return 0
    count = _nucleus_size(weights, parameters.top_p * high)
    if count >= len(weights) or weights[-1] >= weights[count - 1] * _LESS:
        return 0
    return count if _nucleus_size(weights, parameters.top_p * low) == count else 0


def _drawn(found: Found, weights: Sequence[float]) -> Chosen:
    """The row's number looked up in the cumulative weights, by ascending id."""
    by_id = sorted(zip(found.ids[: len(weights)].tolist(), range(len(weights)), strict=True))
    cumulative = list(accumulate([weights[place] for _, place in by_id]))
    wanted = found.number * cumulative[-1]
    token_id, place = next((by_id[i] for i, sum_ in enumerate(cumulative) if sum_ > wanted), by_id[-1])
    return Chosen(token_id, float(found.raw[place]))
