"""Logits → token id: a pure function of the row, the request's parameters and tokens, its seed and the position.

Order of operations, as users of vLLM know it: logit_bias, penalties, min_tokens; temperature, min_p, top_k, top_p;
one uniform draw from a counter-based generator (`philox.py`) looked up in the cumulative probabilities of the kept
tokens, in ascending order of token id. Ties go to the lowest id everywhere. One row at a time in numpy, whose sums over
a whole row of one length take one order; so neither company nor threads change a draw.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.core.sampling_params import SamplingParams
from engine.execution.philox import uniform
from kernels.backend import RowStatistics

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
TokenIds = NDArray[np.int64]

_LARGEST = float(np.finfo(np.float32).max)
_FIRST_SORTED = 1024  # top_p sorts the likeliest so many, and more only while they do not add up


class Draw(NamedTuple):
    """
    is_finite      False: the logits held nan or inf, or min_tokens bans every token; the other fields then mean
                   nothing (token 0, log-probability 0)
    logprob        float32 value; natural-log probability under the unmodified logits
    top_logprobs   (token id, log-probability), most likely first, ties by lowest id
    """

    is_finite: bool
    token_id: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...]


class History(NamedTuple):
    """What a draw depends on beside logits and parameters.

    logit_bias    (token id, bias); ids outside the vocabulary are passed over
    banned        ids that cannot be drawn yet (min_tokens)
    """

    prompt: Sequence[int]
    output: Sequence[int]
    logit_bias: Sequence[tuple[int, float]] = ()
    banned: Sequence[int] = ()


NO_DRAW = Draw(False, 0, 0.0, ())


def draw_token(
    logits: Floats, sampling: SamplingParams, history: History, statistics: RowStatistics | None = None
) -> Draw:
    """The next token. `logits` [vocab_size] float32 is left as it is; the position is the length of the output.

    statistics   the backend's, of this row, where it makes them: a plain greedy draw then reads no logit at all. All
                 rows of a backend have them or none, for their sum has an order of its own.
    """
    statistics = statistics or row_statistics(logits)
    if not statistics.is_finite:
        return NO_DRAW
    log_total = math.log(statistics.total)
    if _is_plainly_greedy(sampling, history):
        token_id, logit = statistics.highest_id, statistics.highest
    else:
        adjusted = _adjusted(logits, sampling, history)
        if adjusted.max() == -np.inf:  # every token is banned
            return NO_DRAW
        greedy = sampling.temperature <= 0.0
        token_id = int(adjusted.argmax()) if greedy else _drawn(adjusted, sampling, len(history.output))
        logit = float(logits[token_id])
    return Draw(
        True,
        token_id,
        _logprob(logit, statistics.highest, log_total),
        _top_logprobs(logits, sampling.num_logprobs, statistics.highest, log_total),
    )


def row_statistics(logits: Floats) -> RowStatistics:
    """What `draw_token` asks of a whole row, for a backend that does not make it; the sum is taken in float64."""
    if not np.isfinite(logits).all():
        return RowStatistics(0, 0.0, 0.0, 0)
    highest_id = int(logits.argmax())
    highest = logits[highest_id]
    return RowStatistics(highest_id, float(np.exp(logits - highest).sum(dtype=np.float64)), float(highest), 1)


def _is_plainly_greedy(sampling: SamplingParams, history: History) -> bool:
    """Nothing changes the logits and the highest one is taken."""
    return (
        sampling.temperature <= 0.0
        and not history.logit_bias
        and not history.banned
        and sampling.repetition_penalty == 1.0
        and not sampling.presence_penalty
        and not sampling.frequency_penalty
    )


# ── what changes the logits ──────────────────────────────────────────────────────────────────────────────────────────


def _adjusted(logits: Floats, sampling: SamplingParams, history: History) -> Floats:
    adjusted = logits.copy()
    vocab_size = len(logits)
    for token_id, bias in history.logit_bias:
        if 0 <= token_id < vocab_size:
            adjusted[token_id] += np.float32(bias)
    _penalise(adjusted, sampling, history)
    banned = [token_id for token_id in history.banned if 0 <= token_id < vocab_size]
    adjusted[banned] = -np.inf
    return adjusted


def _penalise(logits: Floats, sampling: SamplingParams, history: History) -> None:
    """Repetition over prompt and output, presence and frequency over the output, in place, as vLLM defines them."""
    if sampling.repetition_penalty != 1.0:
        seen = np.unique(np.array([*history.prompt, *history.output], dtype=np.int64))
        known, penalty = logits[seen].astype(np.float64), sampling.repetition_penalty
        penalised = np.where(known > 0, known / penalty, known * penalty)
        logits[seen] = np.clip(penalised, -_LARGEST, _LARGEST)  # a tiny penalty must not make an infinity
    if history.output and (sampling.presence_penalty or sampling.frequency_penalty):
        seen, counts = np.unique(np.array(history.output, dtype=np.int64), return_counts=True)
        logits[seen] -= np.float32(sampling.frequency_penalty) * counts.astype(np.float32)
        logits[seen] -= np.float32(sampling.presence_penalty)


# ── what chooses among them ──────────────────────────────────────────────────────────────────────────────────────────


def _drawn(logits: Floats, sampling: SamplingParams, position: int) -> int:
    """One of the kept tokens, by the uniform of seed and position."""
    scaled = (logits.astype(np.float64) - np.float64(logits.max())) / sampling.temperature
    weights = np.exp(scaled)  # relative to the likeliest, which has 1
    kept = _kept(weights, sampling)
    cumulative = np.cumsum(weights[kept])
    index = int(np.searchsorted(cumulative, uniform(sampling.seed, position) * cumulative[-1], side="right"))
    return int(kept[min(index, len(kept) - 1)])


def _kept(weights: Doubles, sampling: SamplingParams) -> TokenIds:
    """Ids left by min_p, top_k and top_p, ascending; at least the likeliest."""
    smallest = max(sampling.min_p, np.finfo(np.float64).tiny)  # weights of the likeliest is 1
    kept = np.flatnonzero(weights >= smallest)
    if 0 < sampling.top_k < len(kept):
        kept = np.sort(_likeliest(weights, kept, sampling.top_k))
    if sampling.top_p < 1.0:
        kept = np.sort(_nucleus(weights, kept, sampling.top_p))
    return kept


def _likeliest(weights: Doubles | Floats, ids: TokenIds, count: int) -> TokenIds:
    """The `count` ids of highest weight, highest first, ties by lowest id; `ids` ascending."""
    values = weights[ids]
    if count < len(ids):
        bound = np.partition(values, len(ids) - count)[len(ids) - count]
        ids = ids[values >= bound]
        values = weights[ids]
    order = np.argsort(-values, kind="stable")  # stable: equal weights stay in ascending order of id
    return ids[order[:count]]


def _nucleus(weights: Doubles, ids: TokenIds, top_p: float) -> TokenIds:
    """The fewest likeliest ids whose share of all of `ids` reaches top_p; at least one."""
    wanted = top_p * float(np.cumsum(weights[ids])[-1])
    count = min(_FIRST_SORTED, len(ids))
    while True:
        likeliest = _likeliest(weights, ids, count)
        cumulative = np.cumsum(weights[likeliest])
        if cumulative[-1] >= wanted or count == len(ids):
            return likeliest[: int(np.searchsorted(cumulative, wanted, side="left")) + 1]
        count = min(8 * count, len(ids))


# ── log-probabilities ────────────────────────────────────────────────────────────────────────────────────────────────


def _logprob(logit: float, highest: float, log_total: float) -> float:
    """Rounded to float32, as it is reported and recorded."""
    return float(np.float32(logit - highest - log_total))


def _top_logprobs(logits: Floats, count: int, highest: float, log_total: float) -> tuple[tuple[int, float], ...]:
    if count <= 0:
        return ()
    logprobs = (logits.astype(np.float64) - highest - log_total).astype(np.float32)
    ids = _likeliest(logprobs, np.arange(len(logprobs)), count)  # as reported: rounding can make two equal
    return tuple([(int(token_id), float(logprobs[token_id])) for token_id in ids])
