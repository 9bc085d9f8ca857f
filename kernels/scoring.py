"""What rows of a step say of given tokens: log-probabilities and ranks, of rows from which nothing is drawn.

A prompt's rows are asked so: each about the token that follows it. It is a question of its own after a step, so that a
step that nobody asks pays nothing; backends answer it a tile of rows at a time, and hold no more logits than a tile's.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Numbers = NDArray[np.uint32]


class RowScores(NamedTuple):
    """Under the unmodified logits; a row's own depend on nothing else.

    logprobs       float32 [rows]: natural-log probability of the row's token
    ranks          uint32 [rows]: 1 for the likeliest token, ties by lowest id; 0: the row's logits are not finite, and
                   what else is said of it means nothing
    top_ids        uint32 [rows, num_top]: most likely first, ties by lowest id
    top_logprobs   float32 [rows, num_top]
    """

    logprobs: Floats
    ranks: Numbers
    top_ids: Numbers
    top_logprobs: Floats

    @classmethod
    def empty(cls, num_rows: int, num_top: int) -> "RowScores":
        """To be filled in."""
        return cls(
            np.zeros(num_rows, np.float32),
            np.zeros(num_rows, np.uint32),
            np.zeros((num_rows, num_top), np.uint32),
            np.zeros((num_rows, num_top), np.float32),
        )

    def put(self, first: int, part: "RowScores") -> None:
        """Fill in what is said of the rows from `first` on."""
        for column, of_part in zip(self, part, strict=True):
            column[first : first + len(of_part)] = of_part
