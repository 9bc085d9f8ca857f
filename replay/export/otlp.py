"""A recording as OpenTelemetry spans: a trace for each request, in OTLP/JSON, one `TracesData` object a line.

The spans are those that the daemon sends while it serves (`recorder/spans/request_traces.py`), under the same ids, so
exporting twice gives the same.

Source: OTLP 1.x, JSON Protobuf Encoding and File Exporter.
"""

import json
from typing import Any, BinaryIO

from recorder.spans.request_traces import RequestTrace, RequestTraces, TraceSpan
from replay.export.telling import Telling
from replay.lives import Run

_BATCH_REQUESTS = 64
_KIND_INTERNAL, _KIND_SERVER = 1, 2
_STATUS_ERROR = 2


def write_otlp(run: Run, file: BinaryIO, *, vllm_names: bool = False) -> dict[str, int]:
    """Returns what was written, in counts. Of a preemption the span that follows it tells.

    vllm_names   the attributes that vLLM and SGLang give their spans are there, too
    """
    header = run.recording.header
    model = str(header.environment.get("model") or header.config.get("model", ""))
    traces = RequestTraces(model, run.recording.path.resolve().name, vllm_names=vllm_names)
    telling, lines = Telling(), _Lines(run)
    for moment in telling.of(run):
        trace = traces.take(moment)
        if trace is not None:
            lines.add(trace)
        if lines.num_gathered >= _BATCH_REQUESTS:
            file.write(lines.take())
    if lines.num_gathered:
        file.write(lines.take())
    return {"requests": telling.num_requests, "spans": lines.num_spans}


class _Lines:
    """Finished traces, gathered for a line.

    num_gathered   requests not yet written
    num_spans      of all so far
    """

    def __init__(self, run: Run) -> None:
        header = run.recording.header
        self._wall_ns = header.created_wall_ns - header.created_now_ns
        self._resource = _encoded(
            {
                "service.name": "reprise",
                "service.version": header.reprise_version,
                "reprise.numerics_class": str(header.environment.get("numerics_class", "")),
            }
        )
        self._spans: list[dict[str, Any]] = []
        self.num_gathered = 0
        self.num_spans = 0

    def add(self, trace: RequestTrace) -> None:
        root = self._span(trace, trace.root) | {"kind": _KIND_SERVER}
        if trace.parent is not None:
            root["parentSpanId"] = f"{trace.parent.span_id:016x}"
        root["events"] = [
            {"timeUnixNano": self._wall(event.at_ns), "name": event.name, "attributes": _encoded(event.attributes)}
            for event in trace.events
        ]
        if trace.error:
            root["status"] = {"code": _STATUS_ERROR, "message": trace.error}
        parent = {"kind": _KIND_INTERNAL, "parentSpanId": f"{trace.root.span_id:016x}"}
        self._spans += [root, *[self._span(trace, child) | parent for child in trace.children]]
        self.num_gathered += 1
        self.num_spans += 1 + len(trace.children)

    def take(self) -> bytes:
        """What is gathered, as one line; it is forgotten."""
        scope = {"scope": {"name": "reprise"}, "spans": self._spans}
        data = {"resourceSpans": [{"resource": {"attributes": self._resource}, "scopeSpans": [scope]}]}
        self._spans, self.num_gathered = [], 0
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"

    def _span(self, trace: RequestTrace, span: TraceSpan) -> dict[str, Any]:
        return {
            "traceId": f"{trace.trace_id:032x}",
            "spanId": f"{span.span_id:016x}",
            "name": span.name,
            "startTimeUnixNano": self._wall(span.begin_ns),
            "endTimeUnixNano": self._wall(span.end_ns),
            "attributes": _encoded(span.attributes),
        }

    def _wall(self, at_ns: int) -> str:
        return str(self._wall_ns + at_ns)


def _encoded(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    """An `AnyValue`; 64-bit integers are text in the JSON encoding."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
