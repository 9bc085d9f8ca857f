"""OpenTelemetry, where it is asked for: started before the engine, ended after it.

Without, nothing of its SDK is imported, for that takes longer than the engine's start has to spare. The engine process
notices neither.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from daemon.service import Service
from daemon.telemetry.metrics import live_families
from daemon.telemetry.otel_settings import OtelSettings, read_otel_settings
from daemon.telemetry.request_feed import RequestFeed
from recorder.request_span import RequestSpan
from recorder.spans.request_traces import RequestTrace

if TYPE_CHECKING:
    from daemon.telemetry.metric_sender import MetricSender
    from daemon.telemetry.span_sender import SpanSender

CLOSE_SECONDS = 2.0  # for what waits to be sent when the daemon ends

log = structlog.get_logger(__name__)


class OpenTelemetry:
    """Made by `start_open_telemetry`; `close` when the engine has ended."""

    def __init__(self, service: Service, run: str, settings: OtelSettings) -> None:
        from daemon.telemetry.otel_resource import resource_of

        resource = resource_of(service.version)
        self._spans: SpanSender | None = None
        self._metrics: MetricSender | None = None
        if settings.traces_endpoint:
            from daemon.telemetry import span_sender

            self._spans = span_sender.SpanSender(
                settings.traces_endpoint, resource, service.version, service.spans_sent
            )
        if settings.metrics_endpoint:
            from daemon.telemetry import metric_sender

            self._metrics = metric_sender.MetricSender(
                settings.metrics_endpoint,
                resource,
                service.version,
                lambda: live_families(service),
                (service.config.host, service.config.port),
            )
        vllm_names = service.config.otlp_vllm_names
        service.engine.readings.append(RequestFeed(run, self._send, self._record, vllm_names=vllm_names))
        log.info("sending OpenTelemetry", traces=settings.traces_endpoint, metrics=settings.metrics_endpoint)

    async def close(self) -> None:
        """Send what waits, for CLOSE_SECONDS at most."""
        if self._metrics is not None:
            self._metrics.end()
        senders = [sender for sender in (self._spans, self._metrics) if sender is not None]
        await asyncio.gather(*[asyncio.to_thread(sender.close, CLOSE_SECONDS) for sender in senders])

    def _send(self, trace: RequestTrace, wall_offset_ns: int) -> None:
        if self._spans is not None:
            self._spans.send(trace, wall_offset_ns)

    def _record(self, span: RequestSpan, model: str) -> None:
        if self._metrics is not None:
            self._metrics.record_end(span, model)


def start_open_telemetry(service: Service, run: str, environment: Mapping[str, str]) -> OpenTelemetry | None:
    """None where nobody asks for it. Before the engine starts, in the event loop. Raises InvalidOtelSetting.

    run   name of the recording, "" for none
    """
    config = service.config
    settings = read_otel_settings(config.otlp_traces_endpoint, config.otlp_metrics_endpoint, environment)
    return OpenTelemetry(service, run, settings) if settings.is_enabled else None
