"""A prompt's log-probabilities, gathered over the steps that compute its rows, and told when all of them are there.

The row of token p says what follows it, so it is asked about token p + 1; the last row draws. Rows come in order; after
a preemption they come again. Those that have been asked are passed by: nothing is lost, and nothing told twice. It must
not know backends or steps.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from engine.core.contents import PromptLogprobs, RequestContents
from engine.core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from kernels.scoring import RowScores  # numpy with it, which a runner without weights does not load

Ask = Callable[[int, int, int], "RowScores"]  # first row, one after the last, alternatives of each


class AskedPrompts:
    """Those of the requests that a runner holds; false while there are none, so that a step need not look for any."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._rows: dict[int, PromptRows] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, request: int, sampling: SamplingParams, contents: RequestContents) -> None:
        """A request that has emitted tokens has been told of its prompt."""
        if sampling.num_prompt_logprobs >= 0 and not contents.output_token_ids:
            num_top = min(sampling.num_prompt_logprobs, self._vocab_size)
            self._rows[request] = PromptRows(len(contents.prompt_token_ids), num_top)

    def drop(self, request: int) -> None:
        """It has ended."""
        self._rows.pop(request, None)

    def distrust(self, request: int) -> None:
        """What was computed of it may be wrong."""
        if request in self._rows:
            self._rows[request].forget()

    def ask(self, request: int, start: int, end: int, ask: Ask) -> None:
        """Of a request's rows start … end-1 those that are wanted. `ask` is called where there are any."""
        rows = self._rows.get(request)
        if rows is not None:
            first, last = rows.wanted(start, end)
            if first < last:
                rows.take(ask(first, last, rows.num_top))

    def not_finite(self) -> frozenset[int]:
        """Requests some of whose logits were not, so that they cannot go on."""
        return frozenset([request for request, rows in self._rows.items() if not rows.is_finite])

    def told(self, requests: Iterable[int]) -> tuple[PromptLogprobs, ...]:
        """Of those of `requests` that asked, once: the step has computed the last row of their prompts.

        One whose first rows were computed before it was held here is not told of.
        """
        finished = [(request, self._rows.pop(request)) for request in requests if request in self._rows]
        return tuple([rows.told(request) for request, rows in finished if rows.is_whole])


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

    def take(self, scores: "RowScores") -> None:
        """Of the rows that were wanted."""
        self._num_scored += len(scores.ranks)
        self._parts.append(scores)
        self.is_finite = self.is_finite and bool(scores.ranks.all())

    def told(self, request: int) -> PromptLogprobs:
        """All of it, once it is whole."""
        columns = [b"".join([_little_endian(part) for part in parts]) for parts in zip(*self._parts, strict=True)]
        logprobs, ranks, top_ids, top_logprobs = columns or (b"", b"", b"", b"")
        return PromptLogprobs(request, self.num_top, logprobs, ranks, top_ids, top_logprobs)


def prompt_digests(prompts: Iterable[PromptLogprobs]) -> tuple[tuple[int, int, int], ...]:
    """As `StepCompleted.prompt_logprobs` has them."""
    return tuple([(prompt.request, prompt.num_tokens, prompt_digest(prompt)) for prompt in prompts])


def prompt_digest(prompt: PromptLogprobs) -> int:
    """64-bit digest of all that is told: equal digests mean equal bits, in whatever chunks they were computed."""
    digest = hashlib.blake2b(prompt.num_top.to_bytes(4, "little"), digest_size=8)
    for column in prompt[2:]:
        digest.update(column)
    return int.from_bytes(digest.digest(), "little")


def _little_endian(column: Any) -> bytes:
    """Of a numpy array."""
    packed: bytes = column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes()
    return packed
