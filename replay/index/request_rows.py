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
        self._told: dict[int, tuple[object, ...]] = {}  # open row in the index → what it was made of
        self._timeline = timeline
        self._sink = sink

    def on_arrived(self, request: int, life: int, sequence: int) -> None:
        self.arrivals.setdefault(request, (life, sequence))
        self._told.pop(request, None)

    def tell_ended(self) -> None:
        """After an entry that may have ended some."""
        spans, live = self._timeline.spans, self._timeline.live
        for request in [request for request in spans if request not in live]:
            self._tell(spans.pop(request))
            self.arrivals.pop(request, None)
            self._told.pop(request, None)

    def tell_open(self) -> None:
        """Those that are not in the index as they are now: thousands may wait, of whom nothing is new."""
        told = self._told
        for request, span in self._timeline.live.items():
            known = _changing(span)
            if told.get(request) != known:
                told[request] = known
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


def _changing(span: RequestSpan) -> tuple[object, ...]:
    """All that can change in a live one's row; its gaps change only with its tokens."""
    return (
        *(span.first_admitted_ns, span.first_token_ns, span.last_token_ns, span.num_output_tokens),
        *(span.num_cached_tokens, span.num_preemptions, span.num_swaps),
    )


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
