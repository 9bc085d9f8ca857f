"""Logits → token id in numpy: the meaning of each parameter of `sampling.py`, one row at a time.

Weights are float64, relative to the likeliest token's, which has 1. numpy's sums over a row of one length take one
order; so neither company nor threads change a draw.
"""

import math

import numpy as np
from numpy.typing import NDArray

from kernels.philox import uniform
from kernels.sampling import NO_DRAW, Draw, DrawParameters, DrawRow, SeenTokens

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
TokenIds = NDArray[np.int64]

_LARGEST = float(np.finfo(np.float32).max)
_FIRST_SORTED = 1024  # top_p sorts the likeliest so many, and more only while they do not add up


def draw_token(logits: Floats, row: DrawRow) -> Draw:
    """The next token. `logits` [vocab_size] float32 is left as it is."""
    if not np.isfinite(logits).all():
        return NO_DRAW
    parameters = row.parameters
    adjusted = _adjusted(logits, row)
    if not np.isfinite(adjusted.max()):  # every token is banned
        return NO_DRAW
    greedy = parameters.temperature <= 0.0
    token_id = int(adjusted.argmax()) if greedy else _drawn(adjusted, parameters, row.position)
    logprobs = logprobs_of(logits)
    return Draw(True, token_id, float(logprobs[token_id]), top_logprobs(logprobs, parameters.num_logprobs))


# ── what changes the logits ──────────────────────────────────────────────────────────────────────────────────────────


def _adjusted(logits: Floats, row: DrawRow) -> Floats:
    adjusted = logits.copy()
    vocab_size = len(logits)
    for token_id, bias in zip(row.parameters.biased, row.parameters.biases, strict=True):
        if 0 <= token_id < vocab_size:
            adjusted[token_id] += np.float32(bias)
    if row.seen is not None:
        _penalise(adjusted, row.parameters, row.seen)
    adjusted[[token_id for token_id in row.banned if 0 <= token_id < vocab_size]] = -np.inf
    if row.allowed is not None:
        allowed = np.zeros(vocab_size, np.bool_)
        bits = np.unpackbits(np.frombuffer(row.allowed, np.uint8), bitorder="little")[:vocab_size]
        allowed[: len(bits)] = bits
        adjusted[~allowed] = -np.inf
    return adjusted


def _penalise(logits: Floats, parameters: DrawParameters, seen: SeenTokens) -> None:
    """Repetition over prompt and output, presence and frequency over the output, in place, as vLLM defines them."""
    ids, counts = np.array(seen.ids, dtype=np.int64), np.array(seen.counts, dtype=np.int64)
    known = (ids >= 0) & (ids < len(logits))
    ids, counts = ids[known], counts[known]
    if parameters.repetition_penalty != 1.0:
        before, penalty = logits[ids].astype(np.float64), parameters.repetition_penalty
        penalised = np.where(before > 0, before / penalty, before * penalty)
        logits[ids] = np.clip(penalised, -_LARGEST, _LARGEST)  # a tiny penalty must not make an infinity
    if parameters.presence_penalty or parameters.frequency_penalty:
        ids, counts = ids[counts > 0], counts[counts > 0]
        logits[ids] -= np.float32(parameters.frequency_penalty) * counts.astype(np.float32)
        logits[ids] -= np.float32(parameters.presence_penalty)


# ── what chooses among them ──────────────────────────────────────────────────────────────────────────────────────────


def _drawn(logits: Floats, parameters: DrawParameters, position: int) -> int:
    """One of the kept tokens, by the uniform number of seed and position."""
    scaled = (logits.astype(np.float64) - np.float64(logits.max())) / parameters.temperature
    weights = np.exp(scaled)  # relative to the likeliest, which has 1
    kept = _kept(weights, parameters)
    cumulative = np.cumsum(weights[kept])
    index = int(np.searchsorted(cumulative, uniform(parameters.seed, position) * cumulative[-1], side="right"))
    return int(kept[min(index, len(kept) - 1)])


def _kept(weights: Doubles, parameters: DrawParameters) -> TokenIds:
    """Ids left by min_p, top_k and top_p, ascending; at least the likeliest."""
    smallest = max(parameters.min_p, np.finfo(np.float64).tiny)  # the weight of the likeliest is 1
    kept = np.flatnonzero(weights >= smallest)
    if 0 < parameters.top_k < len(kept):
        kept = np.sort(_likeliest(weights, kept, parameters.top_k))
    if parameters.top_p < 1.0:
        kept = np.sort(_nucleus(weights, kept, parameters.top_p))
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


def logprobs_of(logits: Floats) -> Floats:
    """Under the unmodified logits; the sum is taken in float64, the result rounded as it is reported and recorded."""
    highest = float(logits.max())
    total = float(np.exp(logits - np.float32(highest)).sum(dtype=np.float64))
    logprobs: Floats = (logits.astype(np.float64) - highest - math.log(total)).astype(np.float32)
    return logprobs


def top_logprobs(logprobs: Floats, count: int) -> tuple[tuple[int, float], ...]:
    """(token id, log-probability) of the `count` likeliest."""
    if count <= 0:
        return ()
    ids = _likeliest(logprobs, np.arange(len(logprobs)), count)  # as reported: rounding can make two equal
    return tuple([(int(token_id), float(logprobs[token_id])) for token_id in ids])
