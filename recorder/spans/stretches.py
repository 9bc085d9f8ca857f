"""The requests that live, and which stretch of its life each is in: one at a time, ended before the next begins.

Nothing is kept of a request that was closed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recorder.request_span import Phase, RequestSpan
from recorder.spans.moments import DECODE, Began, Closed, Ended, Moment
from recorder.timeline import Timeline


@dataclass(slots=True)
class Held:
    """A request that lives: its stretch ("" for none), and the output tokens it had when that began."""

    span: RequestSpan
    stretch: str = ""
    num_output_tokens: int = 0


class Stretches:
    """
    open       request → what is held of it
    sequence   of the entry that is being told
    """

    def __init__(self, timeline: Timeline) -> None:
        """Spans of closed requests are taken out of `timeline`."""
        self._timeline = timeline
        self.open: dict[int, Held] = {}
        self.sequence = -1

    def has_ended(self, request: int) -> bool:
        return request in self.open and self.open[request].span.phase is Phase.ENDED

    def close(self, request: int, now_ns: int) -> Iterator[Moment]:
        yield from self.end(request, now_ns)
        span = self.open.pop(request).span
        if self._timeline.spans.get(request) is span:
            del self._timeline.spans[request]
        yield Closed(request, now_ns, span, self.sequence)

    def begin(
        self, request: int, name: str, now_ns: int, values: dict[str, Any], flow: int = 0, chain: int = 0
    ) -> Iterator[Moment]:
        held = self.open[request]
        yield from self.end(request, now_ns)
        held.stretch, held.num_output_tokens = name, held.span.num_output_tokens
        yield Began(request, name, now_ns, values, flow, chain)

    def end(self, request: int, now_ns: int) -> Iterator[Moment]:
        held = self.open.get(request)
        if held is None or not held.stretch:
            return
        name, held.stretch = held.stretch, ""
        is_decode = name == DECODE
        values = {"num_tokens": held.span.num_output_tokens - held.num_output_tokens} if is_decode else {}
        yield Ended(request, name, now_ns, values)
