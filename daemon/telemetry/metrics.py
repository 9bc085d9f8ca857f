"""/metrics: what the timeline says, and what only the daemon knows: its engines, the recorder, the spans it sends.

Memory, CPU time and descriptors of both processes stand beside, under Prometheus' own names (`process_…`).
Nothing is counted here: each scrape reads the timeline, so the same stream gives the same figures live and afterwards
(`recorder/metrics/`). This file must not know HTTP but for the format that a scraper asks for.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from daemon.service import Service
from recorder.metrics.families import Families
from recorder.metrics.own_set import own_families
from recorder.metrics.vllm_set import vllm_families

_NO_PROCESS = -1  # its files are not found, so nothing is said
OPEN_METRICS = "application/openmetrics-text"


class MetricsPage:
    """`render` gives the page as it stands now, and its content type."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(service))
        ProcessCollector(registry=self._registry)
        engine = service.engine.supervisor
        ProcessCollector("reprise_engine", lambda: engine.pid or _NO_PROCESS, registry=self._registry)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """`accept`: the header of the scraper; with OpenMetrics it gets exemplars too.

        Names stay as they are: the library's own choice of a format would make `vllm_` of `vllm:` for some scrapers.
        """
        if OPEN_METRICS in accept:
            page: bytes = openmetrics.generate_latest(  # type: ignore[no-untyped-call]
                self._registry, escaping=openmetrics.ALLOWUTF8, version="1.0.0"
            )
            return page, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


def live_families(service: Service) -> Iterator[Metric]:
    """All there is to say now."""
    make = Families({"model_name": service.served_names[0], "engine": "0"})
    timeline = service.engine.timeline
    yield from vllm_families(timeline, make)
    yield from own_families(timeline, make)
    yield from _engines(service, make)
    yield from _recorder(service, make)
    yield from _spans(service, make)
    yield from _service(service, make)


class _Collector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return []  # spares the registry a collection before the engine is there

    def collect(self) -> Iterator[Metric]:
        return live_families(self._service)


def _engines(service: Service, make: Families) -> Iterator[Metric]:
    engine = service.engine
    restarts = engine.supervisor.num_restarts
    yield make.counter("reprise:engine_restarts", "Engines started after one died.", restarts)
    handed_over, blamed = engine.handover.num_handed_over, engine.handover.num_blamed
    yield make.counter("reprise:requests_handed_over", "Requests that went on in another engine.", handed_over)
    yield make.counter("reprise:requests_blamed", "Requests ended for the engine died on them.", blamed)
    stalled = engine.progress.stalled_seconds
    yield make.gauge("reprise:seconds_without_progress", "Time that work has waited and nothing moved.", stalled)


def _recorder(service: Service, make: Families) -> Iterator[Metric]:
    written = service.engine.recorder.totals
    yield make.counter("reprise:recorder_bytes", "Bytes recorded.", written.num_bytes)
    yield make.counter("reprise:recorder_entries", "Entries recorded.", written.num_entries)
    yield make.counter("reprise:recorder_gap_entries", "Entries lost by the recorder.", written.num_gap_entries)
    early = "Entries that clients saw before they were on file: the disk stalled."
    yield make.counter("reprise:recorder_early_entries", early, written.num_early_entries)
    lag = "Entries that wait to be on file, as last counted."
    yield make.gauge("reprise:recorder_lag_entries", lag, written.num_waiting_entries)
    removed = written.num_removed_segments
    yield make.counter("reprise:recorder_removed_segments", "Segments removed to keep the bounds.", removed)
    on_disk, pinned = written.num_directory_bytes, written.num_pinned_bytes
    yield make.gauge("reprise:recorder_directory_bytes", "Of all runs, as last counted.", on_disk)
    yield make.gauge("reprise:recorder_pinned_bytes", "Of pinned segments, as last counted.", pinned)
    stopped = float(written.is_stopped)
    yield make.gauge("reprise:recorder_stopped", "1 while entries are lost: disk full or failing.", stopped)


def _spans(service: Service, make: Families) -> Iterator[Metric]:
    counts = service.spans_sent.by_fate
    yield make.counter("reprise:trace_spans", "OpenTelemetry spans, by what became of them.", counts, "fate")


def _service(service: Service, make: Families) -> Iterator[Metric]:
    refused = service.refusals.by_answer
    labels = ("status", "code")
    yield make.counter_by("reprise:refused_calls", "Calls answered with an error, by why.", labels, refused)
    yield make.counter("reprise:reloads", "Reloads, by what came of them.", service.reloads, "outcome")
    expires = service.tls.not_after_s if service.tls is not None else 0
    yield make.gauge("reprise:tls_expiry_timestamp_seconds", "When the certificate expires; 0 without TLS.", expires)
