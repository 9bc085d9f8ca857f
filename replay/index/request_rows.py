"""One row for each request, from its span: the figures that `reprise show --request` tells."""

from recorder.request_span import RequestSpan
from recorder.timeline import Timeline
from replay.figures import quantiles
from replay.index.sink import Sink


class RequestRows:
    """The spans of the live ones are kept, of those that have ended only until their row is made.

    arrivals   live request → life and sequence in which it arrived first
    """

    def __init__(self, timeline: Timeline, sink: Sink) -> None:
        self.arrivals: dict[int, tuple[int, int]] = {}
        self._timeline = timeline
        self._sink = sink

    def on_arrived(self, request: int, life: int, sequence: int) -> None:
        self.arrivals.setdefault(request, (life, sequence))

    def tell_ended(self) -> None:
        """After an entry that may have ended some."""
        spans, live = self._timeline.spans, self._timeline.live
        for request in [request for request in spans if request not in live]:
            self._tell(spans.pop(request))
            self.arrivals.pop(request, None)

    def tell_open(self) -> None:
        for span in self._timeline.live.values():
            self._tell(span)

    def _tell(self, span: RequestSpan) -> None:
        life, sequence = self.arrivals.get(span.request, (0, 0))
        gaps = span.itl_ns or []
        p50 = quantiles(gaps, (50,))
        self._sink.add(
            *("requests", life, span.request, span.request_id, span.tenant, span.priority, sequence, span.arrival_ns),
            *(span.first_admitted_ns, span.first_token_ns, span.last_token_ns, span.ended_ns),
            str(span.outcome) or None,
            *(span.num_prompt_tokens, span.num_output_tokens, max(0, span.num_cached_tokens), span.num_preemptions),
            *(span.num_swaps, _ms(span.ttft_ns), _ms(span.tpot_ns), p50 and p50["p50"], _ms(max(gaps, default=None))),
            *(_ms(span.queue_ns), _ms(span.e2e_ns)),
        )


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
