"""Tokens drawn after a step on a device: greedy ones from the statistics that the step has left, others from logits.

A row that takes the likeliest token of its unchanged logits needs nothing but where that is, and three numbers; only
for the others do logits come to the host, where `reference_sampling.py` draws. Which way a row goes follows its own
parameters alone, so a draw is the same in any company.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reference_sampling import draw_token
from kernels.sampling import NO_DRAW, Draw, DrawRow

Floats = NDArray[np.float32]


def draw_rows(
    rows: Sequence[DrawRow], best: NDArray[Any], highest: Floats, log_sums: Floats, read: Callable[[list[int]], Floats]
) -> list[Draw]:
    """One Draw for each of `rows`.

    best       int32 [rows]: the likeliest token, the lowest id of several
    highest    float32 [rows]: its logit
    log_sums   float32 [rows]: natural logarithm of the sum of all exponentials; not finite where a logit is not
    read       logits float32 [len(places), vocab_size] of the rows at these places
    """
    places = [place for place, row in enumerate(rows) if not takes_the_likeliest(row)]
    logits = dict(zip(places, read(places), strict=True)) if places else {}
    return [
        draw_token(logits[place], row)
        if place in logits
        else _likeliest(int(best[place]), highest[place], log_sums[place])
        for place, row in enumerate(rows)
    ]


def takes_the_likeliest(row: DrawRow) -> bool:
    """Nothing changes its logits, and nothing more is asked about them."""
    parameters = row.parameters
    return (
        parameters.temperature <= 0.0
        and parameters.num_logprobs <= 0
        and row.seen is None
        and row.allowed is None
        and not len(row.banned)
        and not len(parameters.biased)
    )


def _likeliest(token_id: int, highest: np.float32, log_sum: np.float32) -> Draw:
    logprob = float(highest - log_sum)
    return Draw(True, token_id, logprob, ()) if math.isfinite(logprob) else NO_DRAW
