"""Finds a client's stop strings in an answer that arrives in pieces, and holds back what may become one.

Of several stop strings the one complete first ends the answer: that whose last character comes earliest, of two that
end together the one that began earlier. Each character is looked at once per stop string.
Source: Knuth, Morris, Pratt, Fast pattern matching in strings, 1977.
"""

from collections.abc import Sequence


class StopStringFinder:
    """
    stop_strings      each of at least one character; their number and length are bounded by the caller
    include_stop      the answer keeps the stop string that ended it
    stopped_by        the stop string that ended the answer, None while it goes on

    Pushing one token's text at a time, the token pushed when `stopped_by` is set is the answer's last.
    """

    def __init__(self, stop_strings: Sequence[str], *, include_stop: bool = False) -> None:
        assert all(stop_strings), "an empty stop string would stop everything"
        self._patterns = [(stop, _fallbacks(stop)) for stop in stop_strings]
        self._matched = [0] * len(self._patterns)  # characters of each stop string that the text so far ends with
        self._include_stop = include_stop
        self._held = ""
        self.stopped_by: str | None = None

    def push(self, text: str, may_stop: bool = True) -> str:
        """What of the answer is certain now; nothing once it has stopped.

        may_stop   False while the answer is too short to end: a stop string completed in this piece is plain text
        """
        if self.stopped_by is not None or not self._patterns:
            return "" if self.stopped_by is not None else text
        pending = self._held + text
        for position, character in enumerate(text, start=len(self._held) + 1):
            stop = self._longest_completed(character)
            if stop is not None and may_stop:
                self.stopped_by, self._held = stop, ""
                return pending[: position if self._include_stop else position - len(stop)]
        certain = len(pending) - max(self._matched)
        self._held = pending[certain:]
        return pending[:certain]

    def finish(self) -> str:
        """What was held back, when the answer ends without a stop string."""
        held, self._held = self._held, ""
        return held

    def _longest_completed(self, character: str) -> str | None:
        completed: str | None = None
        for index, (stop, fallbacks) in enumerate(self._patterns):
            matched = self._matched[index]
            while matched and stop[matched] != character:
                matched = fallbacks[matched]
            matched += stop[matched] == character
            if matched == len(stop):
                completed = stop if completed is None or len(stop) > len(completed) else completed
                matched = fallbacks[matched]
            self._matched[index] = matched
        return completed


def _fallbacks(stop: str) -> list[int]:
    """[n] = length of the longest proper prefix of `stop` that the first n characters end with."""
    fallbacks = [0, 0]
    for character in stop[1:]:
        matched = fallbacks[-1]
        while matched and stop[matched] != character:
            matched = fallbacks[matched]
        fallbacks.append(matched + (stop[matched] == character))
    return fallbacks
