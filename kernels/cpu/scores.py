"""Rows to be scored → the library's structs, and what it says of them. It mirrors ScoreInput and ScoreOutput of
`src/decoder.h`.
"""

import ctypes as c

import numpy as np

from kernels.cpu import library as native
from kernels.scoring import Integers, RowScores

_SCORED = np.dtype([("logprob", np.float32), ("rank", np.uint32)])
_ALTERNATIVE = np.dtype([("token_id", np.uint32), ("logprob", np.float32)])


def score(library: c.CDLL, decoder: int, rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
    """As `Backend.score`, `num_top` within the vocabulary. Raises MemoryError."""
    rows, token_ids = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(token_ids, np.int64)
    scored = np.zeros(len(rows), _SCORED)
    alternatives = np.zeros((len(rows), num_top), _ALTERNATIVE)
    score_input = native.ScoreInput(len(rows), num_top, rows.ctypes.data, token_ids.ctypes.data)
    score_output = native.ScoreOutput(scored.ctypes.data, alternatives.ctypes.data)
    native.raise_if_failed(library, library.reprise_score(decoder, c.byref(score_input), c.byref(score_output)))
    return RowScores(
        np.ascontiguousarray(scored["logprob"]),
        np.ascontiguousarray(scored["rank"]),
        np.ascontiguousarray(alternatives["token_id"]),
        np.ascontiguousarray(alternatives["logprob"]),
    )
