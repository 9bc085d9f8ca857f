"""Requests that ended lately, in case the next engine performs their ends again.

An engine may die after an end is on file and before the daemon has read it. The daemon then hands the request over as
it knows it, and the next engine emits the same tokens and the same end once more: those must not be counted twice.
Only what was on its way between the processes can be repeated, so few ends need to be kept.
"""

from recorder.request_span import RequestSpan

MAX_KEPT = 4_096  # more than entries can be on their way


class RecentEnds:
    """`note` every end; `repeats` says that one of them begins once more."""

    def __init__(self) -> None:
        self._num_output_tokens: dict[int, int] = {}
        self._repeated: dict[int, None] = {}

    def note(self, span: RequestSpan) -> None:
        ended = self._num_output_tokens
        ended[span.request] = span.num_output_tokens
        if len(ended) > MAX_KEPT:
            oldest = next(iter(ended))
            del ended[oldest]
            self._repeated.pop(oldest, None)

    def repeats(self, request: int) -> bool:
        """It was handed over; whether its end was seen before, so that all that comes is a repetition."""
        if request not in self._num_output_tokens:
            return False
        self._repeated[request] = None
        return True

    def is_repeated(self, request: int) -> bool:
        return request in self._repeated

    def num_told(self, request: int) -> int:
        """Tokens of the repeated request that were counted; 0 of any other."""
        return self._num_output_tokens[request] if request in self._repeated else 0
