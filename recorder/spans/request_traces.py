"""Moments → one request's trace: its own span and, as children, the stretches of its life.

Both OpenTelemetry's exporter in the daemon and `reprise export --format otlp` write what this makes. It must not know
either's encoding.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recorder.spans.moments import Began, Closed, Ended, Moment, Noted, Opened
from recorder.spans.request_attributes import ENDS_OF_THEIR_OWN, request_attributes
from recorder.spans.trace_ids import TraceParent, parse_traceparent, span_id_of, trace_id_of

REQUEST_SPAN = "llm_request"  # as vLLM and SGLang call it


class SpanEvent(NamedTuple):
    """A moment within a span."""

    name: str
    at_ns: int
    attributes: dict[str, Any]


class TraceSpan(NamedTuple):
    """A span; times are monotonic nanoseconds."""

    span_id: int
    name: str
    begin_ns: int
    end_ns: int
    attributes: dict[str, Any]


class RequestTrace(NamedTuple):
    """
    parent     the client's span; None where it named none
    root       the request's own span, `error` why it failed ("": it did not)
    children   in order of time, one at a time
    """

    trace_id: int
    parent: TraceParent | None
    root: TraceSpan
    events: list[SpanEvent]
    error: str
    children: list[TraceSpan]


class RequestTraces:
    """`take` all moments in order; a request's trace comes out when it is closed.

    model       what was served
    run         name of the recording, "" for none: each span says where in it the request stands
    vllm_names  the attributes that vLLM and SGLang give their spans are there, too
    """

    def __init__(self, model: str, run: str, *, vllm_names: bool) -> None:
        self._model = model
        self._run = run
        self._vllm_names = vllm_names
        self._live: dict[int, _Live] = {}

    def take(self, moment: Moment) -> RequestTrace | None:
        match moment:
            case Opened():
                self._live[moment.request] = _Live(moment)
            case Began():
                self._live[moment.request].begin(moment)
            case Ended():
                self._live[moment.request].end(moment)
            case Noted() if moment.request >= 0 and moment.name != "waits":
                self._live[moment.request].notes.append(SpanEvent(moment.name, moment.at_ns, moment.values))
            case Closed():
                return self._trace(self._live.pop(moment.request), moment)
        return None

    def _trace(self, live: "_Live", closed: Closed) -> RequestTrace:
        arrived, outcome = live.opened.arrived, str(closed.span.outcome)
        key = arrived.request_id, arrived.arrival_ns
        attributes = request_attributes(arrived, closed.span, self._model, vllm_names=self._vllm_names)
        if self._run:
            attributes["reprise.recording"] = self._run
        attributes |= {"reprise.sequence": live.opened.sequence, "reprise.end_sequence": closed.sequence}
        children = [
            TraceSpan(span_id_of(*key, number), name, begin_ns, end_ns, _own_names(values))
            for number, (name, begin_ns, end_ns, values) in enumerate(live.stretches, start=1)
        ]
        return RequestTrace(
            trace_id_of(*key, arrived.trace_context),
            parse_traceparent(arrived.trace_context),
            TraceSpan(span_id_of(*key, 0), REQUEST_SPAN, live.opened.at_ns, closed.at_ns, attributes),
            live.notes,
            "" if outcome in ENDS_OF_THEIR_OWN else outcome,
            children,
        )


@dataclass(slots=True)
class _Live:
    """stretches   [name, from, to, values], in order"""

    opened: Opened
    stretches: list[list[Any]] = field(default_factory=list)
    notes: list[SpanEvent] = field(default_factory=list)

    def begin(self, moment: Began) -> None:
        self.stretches.append([moment.name, moment.at_ns, moment.at_ns, dict(moment.values)])

    def end(self, moment: Ended) -> None:
        stretch = self.stretches[-1]
        stretch[2] = moment.at_ns
        stretch[3] |= moment.values


def _own_names(values: dict[str, Any]) -> dict[str, Any]:
    return {f"reprise.{name}": value for name, value in values.items()}
