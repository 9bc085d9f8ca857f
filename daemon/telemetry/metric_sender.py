"""What /metrics says, and GenAI's durations, as OpenTelemetry metrics: sent over OTLP by a thread of its own.

Gauges and counters keep their names, with a dot for the colon and without `_total`. Vendors' histograms stay with
Prometheus; GenAI's own three are recorded when a request ends.

Source: open-telemetry/semantic-conventions-genai, GenAI server metrics.
"""

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client.core import Metric

from daemon.telemetry.span_sender import SCOPE
from recorder.request_span import RequestSpan
from recorder.spans.request_attributes import ENDS_OF_THEIR_OWN

_READ_SECONDS = 5.0  # the loop is given so long to say what its figures are
_DURATION_SECONDS = [0.01 * 2**power for power in range(14)]  # to 81.92
_TTFT_SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
_TPOT_SECONDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]

log = structlog.get_logger(__name__)


class MetricSender:
    """Made in the event loop; `record_end` for each ended request, `end` and `close` at the end.

    families   what there is to say; called in the event loop only, where what it reads is changed
    """

    def __init__(
        self,
        endpoint: str,
        resource: Resource,
        version: str,
        families: Callable[[], Iterable[Metric]],
        address: tuple[str, int],
    ) -> None:
        """`address`: host and port that it listens on, as configured."""
        self._address: dict[str, str | int] = {"server.address": address[0], "server.port": address[1]}
        self._families = families
        self._loop = asyncio.get_running_loop()
        self._read: dict[str, Metric] = {}
        self._is_closed = threading.Event()
        self._reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint), export_interval_millis=math.inf)
        self._provider = MeterProvider([self._reader], resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter(SCOPE, version)
        self._durations = {
            name: self._meter.create_histogram(f"gen_ai.server.{name}", "s", explicit_bucket_boundaries_advisory=bounds)
            for name, bounds in (
                ("request.duration", _DURATION_SECONDS),
                ("time_to_first_token", _TTFT_SECONDS),
                ("time_per_output_token", _TPOT_SECONDS),
            )
        }
        self._interval_s = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or 60_000) / 1e3
        self._thread = threading.Thread(target=self._send_until_closed, name="metrics", daemon=True)
        self._thread.start()

    def record_end(self, span: RequestSpan, model: str) -> None:
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": span.operation,
            "gen_ai.provider.name": "reprise",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            **self._address,
        }
        if span.outcome not in ENDS_OF_THEIR_OWN:
            attributes["error.type"] = str(span.outcome)
        for name, nanoseconds in (
            ("request.duration", span.e2e_ns),
            ("time_to_first_token", span.ttft_ns),
            ("time_per_output_token", span.tpot_ns),
        ):
            if nanoseconds is not None:
                self._durations[name].record(nanoseconds / 1e9, attributes)

    def end(self) -> None:
        """In the event loop: read the last figures, and have them sent."""
        self._read = {family.name: family for family in self._families()}
        self._is_closed.set()

    def close(self, seconds: float) -> None:
        """Behind `end`: wait until they are sent, for so long at most."""
        self._thread.join(seconds)

    def _send_until_closed(self) -> None:
        """A collector that is away costs the figures of one interval; counters go on from where they are."""
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # it would log each attempt
        while not self._is_closed.wait(self._interval_s):
            try:
                self._read = asyncio.run_coroutine_threadsafe(self._snapshot(), self._loop).result(_READ_SECONDS)
            except (TimeoutError, RuntimeError):  # the loop is busy, or closed: the next time tells as much
                continue
            self._send()
        self._send()
        self._provider.shutdown(timeout_millis=1000)

    def _send(self) -> None:
        try:
            self._make_instruments()
            self._reader.collect()
        except Exception:
            log.exception("metrics could not be sent")

    async def _snapshot(self) -> dict[str, Metric]:
        return {family.name: family for family in self._families()}

    def _make_instruments(self) -> None:
        """For families not seen before; the SDK makes each name once."""
        for family in self._read.values():
            name = family.name.replace(":", ".")
            if family.type == "gauge":
                self._meter.create_observable_gauge(name, [self._callback(family.name)], "1", family.documentation)
            elif family.type == "counter":
                self._meter.create_observable_counter(name, [self._callback(family.name)], "1", family.documentation)

    def _callback(self, name: str) -> "Callable[[CallbackOptions], Iterator[Observation]]":
        def observe(options: CallbackOptions) -> Iterator[Observation]:
            for sample in self._read[name].samples if name in self._read else ():
                yield Observation(float(sample.value), sample.labels)

        return observe
