"""A collector of OpenTelemetry: a real HTTP server that reads OTLP's protobuf, and what a span in it says, plainly."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class SeenSpan(NamedTuple):
    """One span, whichever encoding it came in; ids are hexadecimal."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    begin_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, int, dict[str, Any]]]
    error: str


class Collector:
    """
    spans         in the order of arrival
    resources     attributes of whoever sent them
    metrics       by name, the latest of each
    """

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[SeenSpan] = []
        self.resources: list[dict[str, Any]] = []
        self.metrics: dict[str, Metric] = {}

    async def traces(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            self.resources.append(_values(resource.resource.attributes))
            self.spans += [_seen(span) for scope in resource.scope_spans for span in scope.spans]
        return web.Response()

    async def take_metrics(self, request: web.Request) -> web.Response:
        message = ExportMetricsServiceRequest.FromString(await request.read())
        for resource in message.resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}
        return web.Response()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector, application = Collector(), web.Application()
    application.add_routes([web.post("/v1/traces", collector.traces), web.post("/v1/metrics", collector.take_metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


def _seen(span: Any) -> SeenSpan:
    return SeenSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _values(span.attributes),
        [(event.name, event.time_unix_nano, _values(event.attributes)) for event in span.events],
        span.status.message,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


def seen_in_json(span: dict[str, Any]) -> SeenSpan:
    """A span of `reprise export --format otlp`."""
    return SeenSpan(
        span["traceId"],
        span["spanId"],
        span.get("parentSpanId", ""),
        span["name"],
        span["kind"],
        int(span["startTimeUnixNano"]),
        int(span["endTimeUnixNano"]),
        _json_values(span["attributes"]),
        [
            (event["name"], int(event["timeUnixNano"]), _json_values(event["attributes"]))
            for event in span.get("events", [])
        ],
        span.get("status", {}).get("message", ""),
    )


def _json_values(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _json_value(pair["value"]) for pair in pairs}


def _json_value(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    match kind:
        case "intValue":
            return int(inner)
        case "arrayValue":
            return [_json_value(item) for item in inner["values"]]
        case _:
            return inner
