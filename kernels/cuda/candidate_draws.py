"""A token drawn from what the device has found of a row: the very token that all of its logits would give, or none.

The device's numbers are logits, whose order is exact, and sums of weights, which are some units in the last place from
the reference's. So each way below first shows that neither a token that was not brought nor such a difference can turn
the draw; then the reference itself draws among the candidates (`reference_sampling._drawn`). Where nothing can be shown
(a flat distribution cut by top_p, a top_k beyond the candidates, a number next to a boundary) the answer is None, and
the host draws from all logits: to the same token, only later. It must not know the device.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.reference_sampling import Doubles, Floats, _drawn
from kernels.sampling import DrawParameters, DrawRow

_LESS = 1 - 2.0**-40  # a weight below this share of another is less than it, whoever has computed the two
_SMALLEST = np.finfo(np.float64).tiny


class Found(NamedTuple):
    """Of one row.

    values       float32 [candidates]: the highest logits after changes, highest first, ties by lowest id
    ids, raw     of these: token ids, unchanged logits
    token_id, token_raw   what a draw from all tokens gives, and its unchanged logit
    margin       share of all weights between that draw and the nearest other token; NaN: unknown
    total        sum of the weights that min_p keeps, the likeliest token's being 1; NaN: unknown
    """

    values: Floats
    ids: NDArray[Any]
    raw: Floats
    token_id: int
    token_raw: float
    margin: float
    total: float


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
    takes_any = parameters.top_p >= 1.0 and not 0 < parameters.top_k < vocab_size
    error = sum_error(vocab_size)
    if takes_any and found.margin > error:
        return Chosen(found.token_id, found.token_raw)
    values = found.values.astype(np.float64)
    weights: Doubles = np.exp((values - values[0]) / parameters.temperature)
    if len(values) == vocab_size or weights[-1] < max(parameters.min_p, _SMALLEST) * _LESS:
        return _among(parameters, row.position, found)  # whatever was not brought is not kept
    if 0 < parameters.top_k < len(values) and weights[-1] < weights[parameters.top_k - 1] * _LESS:
        return _among(parameters, row.position, found)
    if parameters.top_p < 1.0 and not 0 < parameters.top_k < len(values):
        count = _nucleus_size(parameters, found, weights, error)
        if count:
            return _among(replace(parameters, top_k=count, top_p=1.0), row.position, found)
    return None


def sum_error(vocab_size: int) -> float:
    """By which share two sums of a row's weights may differ.

    The reference adds one after the other, so a partial sum is wrong by at most vocab_size units of 2^-53, and the
    number that it is compared with by as many; the device's tree is wrong by a few dozen, and each exponential by one
    or two on either side. Twice that.
    """
    return (vocab_size + 256) * 2.0**-51


def _among(parameters: DrawParameters, position: int, found: Found) -> Chosen:
    """The reference's draw from the candidates alone: they hold all that it would keep."""
    order = np.argsort(found.ids, kind="stable")
    place = order[_drawn(found.values[order], parameters, position)]
    return Chosen(int(found.ids[place]), float(found.raw[place]))


def _nucleus_size(parameters: DrawParameters, found: Found, weights: Doubles, error: float) -> int:
    """How many of the likeliest top_p keeps; 0: it cannot be told."""
    order = np.lexsort((found.ids, -weights))  # as the reference orders: by weight, not by logit
    cumulative = np.cumsum(weights[order])
    low, high = found.total * (1 - error), found.total * (1 + error)
    if parameters.top_k > 0:  # of the top_k likeliest, which are more than the candidates
        low = cumulative[-1]
    if not low <= high:
        return 0
    fewest, most = np.searchsorted(cumulative, parameters.top_p * np.array([low, high]), side="left") + 1
    if fewest != most or most >= len(weights) or weights[-1] >= weights[order[most - 1]] * _LESS:
        return 0
    return int(most)
