"""Requests' traces through OpenTelemetry's SDK: its sampler decides, its batches carry, OTLP over HTTP is spoken.

Span ids and times come from the stream, so the SDK's spans are started and ended at once when a request has ended.

Source: OpenTelemetry specification, Trace SDK; W3C Trace Context.
"""

from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from daemon.telemetry.span_batches import SpanBatches
from daemon.telemetry.spans_sent import SpansSent
from recorder.spans.request_traces import RequestTrace, TraceSpan
from recorder.spans.trace_ids import TraceParent

SCOPE = "reprise"


class SpanSender:
    """`send` each trace; `close` at the end. Sampled as OTEL_TRACES_SAMPLER says: as the client was, else always."""

    def __init__(self, endpoint: str, resource: Resource, version: str, sent: SpansSent) -> None:
        self._batches = SpanBatches(OTLPSpanExporter(endpoint), sent)
        self._ids = _GivenIds()
        provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(self._batches)
        self._tracer = provider.get_tracer(SCOPE, version)

    def send(self, trace: RequestTrace, wall_offset_ns: int) -> None:
        """Some tens of µs for each span; never waits."""
        if not self._batches.has_room(1 + len(trace.children)):
            return
        self._ids.trace_id = trace.trace_id
        root = self._start(trace.root, _context_of(trace.parent), SpanKind.SERVER, wall_offset_ns)
        if not root.is_recording():
            return  # the sampler does not want it
        inside = set_span_in_context(root, Context())
        for child in trace.children:
            span = self._start(child, inside, SpanKind.INTERNAL, wall_offset_ns)
            span.end(wall_offset_ns + child.end_ns)
        for event in trace.events:
            root.add_event(event.name, event.attributes, wall_offset_ns + event.at_ns)
        if trace.error:
            root.set_status(Status(StatusCode.ERROR, trace.error))
        root.end(wall_offset_ns + trace.root.end_ns)

    def close(self, seconds: float) -> None:
        self._batches.close(seconds)

    def _start(self, span: TraceSpan, context: Context, kind: SpanKind, wall_offset_ns: int) -> Span:
        self._ids.span_id = span.span_id
        begin_ns = wall_offset_ns + span.begin_ns
        attributes: dict[str, Any] = span.attributes
        return self._tracer.start_span(span.name, context, kind, attributes, start_time=begin_ns)


class _GivenIds(IdGenerator):
    """Those of the span that is started next."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


def _context_of(parent: TraceParent | None) -> Context:
    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
    remote = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(remote), Context())
