"""Requests that wait longer for a token than was promised: their stretch of the recording is worth keeping.

A reading of the stream, in the writer's thread: the core knows nothing of it. A breach is told at most once a minute,
for one that lasts would pin every segment. It must not know what a pin is.
"""

from engine.core.decisions import RequestFinished, RequestRejected, TokensEmitted
from engine.core.events import RequestArrived
from engine.core.vocabulary import Entry

TELL_INTERVAL_NS = 60 * 10**9
_NS_PER_MS = 1_000_000


class SloWatch:
    """
    ttft_ms   from a request's arrival to its first token, or to its end without one; 0: however long
    itl_ms    between two of its tokens; 0: however long
    """

    def __init__(self, ttft_ms: int, itl_ms: int) -> None:
        self._ttft_ns = ttft_ms * _NS_PER_MS
        self._itl_ns = itl_ms * _NS_PER_MS
        self._arrivals: dict[int, int] = {}  # of those without a token
        self._last_tokens: dict[int, int] = {}
        self._told_ns = -TELL_INTERVAL_NS

    @property
    def is_idle(self) -> bool:
        """Nothing was promised."""
        return not (self._ttft_ns or self._itl_ns)

    def breached(self, entry: Entry) -> bool:
        """Whether the entry shows a breach that is to be told; `entry` as they come, each once."""
        event, now_ns = entry.event, entry.now_ns
        if type(event) is RequestArrived and not event.num_output_tokens:
            self._arrivals[event.request] = event.arrival_ns
        is_late = False
        for decision in entry.decisions:
            if type(decision) is TokensEmitted:
                is_late |= self._see_tokens(decision, now_ns)
            elif type(decision) is RequestFinished or type(decision) is RequestRejected:
                is_late |= self._see_end(decision, now_ns)
        if not is_late or now_ns - self._told_ns < TELL_INTERVAL_NS:
            return False
        self._told_ns = now_ns
        return True

    def _see_tokens(self, decision: TokensEmitted, now_ns: int) -> bool:
        is_late = False
        for request, _count in decision.rows:
            arrival_ns = self._arrivals.pop(request, None)
            if arrival_ns is not None:
                is_late |= 0 < self._ttft_ns < now_ns - arrival_ns
            else:
                is_late |= 0 < self._itl_ns < now_ns - self._last_tokens.get(request, now_ns)
            self._last_tokens[request] = now_ns
        return is_late

    def _see_end(self, decision: RequestFinished | RequestRejected, now_ns: int) -> bool:
        self._last_tokens.pop(decision.request, None)
        arrival_ns = self._arrivals.pop(decision.request, now_ns)
        return type(decision) is RequestFinished and 0 < self._ttft_ns < now_ns - arrival_ns
