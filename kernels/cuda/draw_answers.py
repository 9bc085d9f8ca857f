"""Draws, from what the device has left of each row: on the host, a few numbers a row.

A row for which that is too little is read whole, in a copy of its own, and drawn by the reference: the same token by a
longer way, counted by its reason. Which way a row goes changes no draw, and a draw is the same in any company.
Log-probabilities are a logit less the logarithm of the step's statistics, whichever way.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.cuda.candidate_draws import Chosen, Found, choose
from kernels.cuda.draw_requests import MOST_CANDIDATES, MOST_TOP, DrawRequests, takes_the_likeliest
from kernels.cuda.draws import Asked
from kernels.cuda.row_flags import CANDIDATES, WHOLE
from kernels.reference_sampling import _likeliest, draw_token
from kernels.sampling import NO_DRAW, Draw, DrawRow

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]


def answer(asked: Asked, left: Arrays, read: Callable[[list[int]], Floats], read_back: Counter[str]) -> list[Draw]:
    """One Draw for each row.

    left        what the step and `DeviceDraws.ask` have left, on the host; so `best`, `highest` and `log_sum` too
    read        logits float32 [len(places), vocab_size] of the rows at these places
    read_back   why rows were read whole → how many; counted up
    """
    answers = [_of_row(place, row, asked, left) for place, row in enumerate(asked.rows)]
    lacking = {place: each for place, each in enumerate(answers) if isinstance(each, str)}
    whole = dict(zip(lacking, read(list(lacking)), strict=True)) if lacking else {}
    read_back.update(lacking.values())
    return [
        _of_all_logits(whole[place], asked.rows[place], left["log_sum"][place]) if isinstance(each, str) else each
        for place, each in enumerate(answers)
    ]


def _of_row(place: int, row: DrawRow, asked: Asked, left: Arrays) -> Draw | str:
    """The draw, or why all logits are needed."""
    log_sum, requests = left["log_sum"][place], asked.requests
    if not math.isfinite(log_sum):
        return NO_DRAW
    chosen: Chosen | None = Chosen(int(left["best"][place]), left["highest"][place])
    top: tuple[tuple[int, float], ...] | None = ()
    if requests is not None and not takes_the_likeliest(row):
        if place in requests.refused:
            return requests.refused[place]
        if requests.flags[place] & CANDIDATES:
            if not math.isfinite(left["values"][place, 0]):  # every token is banned
                return NO_DRAW
            chosen = choose(row, _found(place, requests, left), asked.vocab_size)
        top = _top(row.parameters.num_logprobs, place, left, asked.vocab_size)
    if chosen is None:
        return _why_not(row)
    if top is None:
        return "equal top_logprobs"
    return Draw(True, chosen.token_id, float(np.float32(chosen.raw) - log_sum), top)


def _found(place: int, requests: DrawRequests, left: Arrays) -> Found:
    values, ids, raw = (left[name][place, : requests.width] for name in ("values", "ids", "raw"))
    number = float(requests.numbers[place, 2])
    if not requests.flags[place] & WHOLE:
        return Found(values, ids, raw, 0, 0.0, math.nan, math.nan, number)
    token_id, token_raw = int(left["token_id"][place]), float(left["token_raw"][place])
    return Found(
        values, ids, raw, token_id, token_raw, float(left["margin"][place]), float(left["total"][place]), number
    )


def _why_not(row: DrawRow) -> str:
    parameters = row.parameters
    if parameters.top_k >= MOST_CANDIDATES:
        return "top_k"
    return "top_p" if parameters.top_p < 1.0 else "next to a boundary"


def _top(count: int, place: int, left: Arrays, vocab_size: int) -> tuple[tuple[int, float], ...] | None:
    """As reported: rounding can make two equal, which are then told by id. None: one that was not brought may be."""
    if count <= 0:
        return ()
    brought = min(MOST_TOP, vocab_size)
    logprobs = left["top_values"][place, :brought] - left["log_sum"][place]
    if brought < vocab_size and logprobs[-1] == logprobs[count - 1]:
        return None
    ids = left["top_ids"][place, :brought]
    return tuple([(int(ids[each]), float(logprobs[each])) for each in np.lexsort((ids, -logprobs))[:count]])


def _of_all_logits(logits: Floats, row: DrawRow, log_sum: np.float32) -> Draw:
    draw = draw_token(logits, row)
    if not draw.is_finite:
        return NO_DRAW
    logprobs = logits - log_sum
    count = row.parameters.num_logprobs
    ids = _likeliest(logprobs, np.arange(len(logprobs)), count) if count > 0 else ()
    top = tuple([(int(token_id), float(logprobs[token_id])) for token_id in ids])
    return draw._replace(logprob=float(logprobs[draw.token_id]), top_logprobs=top)
