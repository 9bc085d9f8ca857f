"""A prompt's log-probabilities, gathered over the steps that compute its rows, and told when all of them are there.

The row of token p says what follows it, so it is asked about token p + 1; the last row draws. Rows come in order. After a
preemption they come again: those that have been asked are passed by, so nothing is lost and nothing told twice. It must
not know backends or steps.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from engine.core.contents import PromptLogprobs
from kernels.scoring import RowScores


class PromptRows:
    """
    num_top      alternatives wanted of each
    is_finite    False: some logits were not, and the request cannot go on
    """

    __slots__ = ("_num_rows", "_num_scored", "_parts", "is_finite", "num_top")

    def __init__(self, num_prompt_tokens: int, num_top: int) -> None:
        self.num_top = num_top
        self._num_rows = num_prompt_tokens - 1
        self.forget()

    def forget(self) -> None:
        """What was computed cannot be trusted: all rows are asked again."""
        self._num_scored = 0
        self._parts: list[RowScores] = []
        self.is_finite = True

    @property
    def is_whole(self) -> bool:
        return self._num_scored == self._num_rows

    def wanted(self, start: int, end: int) -> tuple[int, int]:
        """Which of the rows start … end-1 are to be asked: the first, and the one after the last; equal for none.

        Rows before those computed here are never asked: who begins in the middle of a prompt does not get it whole.
        """
        first = max(start, self._num_scored)
        return first, max(first, min(end, self._num_rows)) if start <= self._num_scored else first

    def take(self, scores: RowScores) -> None:
        """Of the rows that were wanted."""
        self._num_scored += len(scores.ranks)
        self._parts.append(scores)
        self.is_finite = self.is_finite and bool(scores.ranks.all())

    def told(self, request: int) -> PromptLogprobs:
        """All of it, once it is whole."""
        columns = [b"".join([_little_endian(part) for part in parts]) for parts in zip(*self._parts, strict=True)]
        logprobs, ranks, top_ids, top_logprobs = columns or (b"", b"", b"", b"")
        return PromptLogprobs(request, self.num_top, logprobs, ranks, top_ids, top_logprobs)


def prompt_digest(prompt: PromptLogprobs) -> int:
    """64-bit digest of all that is told: equal digests mean equal bits, in whatever chunks they were computed."""
    digest = hashlib.blake2b(prompt.num_top.to_bytes(4, "little"), digest_size=8)
    for column in prompt[2:]:
        digest.update(column)
    return int.from_bytes(digest.digest(), "little")


def _little_endian(column: NDArray[np.generic]) -> bytes:
    return column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes()
