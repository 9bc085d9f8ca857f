"""Logits → what they say of given tokens, in numpy: the meaning of `scoring.py`, one row at a time."""

import numpy as np

from kernels.reference_sampling import logprobs_of, top_logprobs
from kernels.scoring import Floats, Integers, RowScores


def score_rows(logits: Floats, token_ids: Integers, num_top: int) -> RowScores:
    """
    logits      float32 [rows, vocab_size]
    token_ids   int64 [rows]: the token that each row is asked about
    num_top     at most vocab_size
    """
    scores = RowScores.empty(len(logits), num_top)
    for row, (of_row, token_id) in enumerate(zip(logits, token_ids, strict=True)):
        if not np.isfinite(of_row).all():
            continue
        logprobs = logprobs_of(of_row)
        own = logprobs[token_id]
        scores.logprobs[row] = own
        scores.ranks[row] = 1 + np.count_nonzero(logprobs > own) + np.count_nonzero(logprobs[:token_id] == own)
        for place, (top_id, logprob) in enumerate(top_logprobs(logprobs, num_top)):
            scores.top_ids[row, place], scores.top_logprobs[row, place] = top_id, logprob
    return scores
