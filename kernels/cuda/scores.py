"""Rows of a step on a device asked about tokens, a tile at a time: final norm, head and statistics once more, for them.

The residual stream lies in the step's workspace until the next step. What leaves the device is a few numbers of a row:
its token's logit, how many come before it, the likeliest and log Σ exp. These are the step's own kernels, whose bits do
not depend on how many rows they are given; counting and choosing the highest are exact in any order.

Reference: `reference_scoring.score_rows`.
"""

import numpy as np
import torch

from kernels.cuda import head, rms_norm
from kernels.cuda.decoder_weights import DecoderWeights
from kernels.cuda.workspace import Workspace
from kernels.scoring import Integers, RowScores

ROWS_OF_TILE = 32  # 16 MB of logits for 128,256 tokens, and twice as much to choose the highest


def score(
    weights: DecoderWeights,
    norm_epsilon: float,
    work: Workspace,
    rows: Integers,
    token_ids: Integers,
    num_top: int,
) -> RowScores:
    """As `Backend.score`; `work` as the step has left it."""
    scores = RowScores.empty(len(rows), num_top)
    for first in range(0, len(rows), ROWS_OF_TILE):
        part = slice(first, first + ROWS_OF_TILE)
        logits = _logits(weights, norm_epsilon, work, rows[part])
        scores.put(first, _scores(logits, token_ids[part], num_top))
    return scores


def _logits(weights: DecoderWeights, norm_epsilon: float, work: Workspace, rows: Integers) -> torch.Tensor:
    """float32 [rows, vocabulary]. The last layer's part is added to copies: the workspace stays as it is."""
    device = work.hidden.device
    places = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
    hidden, delta = work.hidden.index_select(0, places), work.delta.index_select(0, places)
    normed = torch.empty(hidden.shape, dtype=torch.bfloat16, device=device)
    given = weights.layers[-1].post_mlp_norm
    rms_norm.add_rms_norm(hidden, delta, weights.final_norm, norm_epsilon, normed, given)
    logits = torch.empty(len(rows), weights.head.num_outputs, device=device)
    head.head(normed, weights.head, logits)
    return logits


def _scores(logits: torch.Tensor, token_ids: Integers, num_top: int) -> RowScores:
    rows, vocab_size = logits.shape
    device = logits.device
    best = torch.empty(rows, dtype=torch.int32, device=device)
    highest, log_sum = (torch.empty(rows, device=device) for _ in range(2))
    head.statistics(logits, best, highest, log_sum)
    tokens = torch.from_numpy(np.ascontiguousarray(token_ids)).to(device)[:, None]
    own = logits.gather(1, tokens)
    ids = torch.arange(vocab_size, device=device)
    is_before = (logits > own) | ((logits == own) & (ids < tokens))
    ranks = torch.where(torch.isfinite(log_sum), 1 + is_before.sum(dim=1), 0)
    top_ids = _highest(logits, ids, num_top)
    top_values = logits.gather(1, top_ids)
    return RowScores(
        (own[:, 0] - log_sum).cpu().numpy(),
        ranks.cpu().numpy().astype(np.uint32),
        top_ids.cpu().numpy().astype(np.uint32),
        (top_values - log_sum[:, None]).cpu().numpy(),
    )


def _highest(logits: torch.Tensor, ids: torch.Tensor, num_top: int) -> torch.Tensor:
    """int64 [rows, num_top], highest first, ties by lowest id: a logit and its id are one number, and all differ."""
    if not num_top:
        return torch.empty(len(logits), 0, dtype=torch.int64, device=logits.device)
    bits = (logits + 0.0).view(torch.int32)  # -0 equals 0
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)
    numbers = (ordered << 32) | (0x7FFFFFFF - ids)
    return 0x7FFFFFFF - (numbers.topk(num_top, dim=1).values & 0xFFFFFFFF)
