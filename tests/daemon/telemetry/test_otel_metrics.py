"""Metrics over OTLP are what /metrics says, and GenAI's durations are the recording's."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from replay.figures import read_timeline
from replay.lives import Run
from tests.daemon.served import serving
from tests.daemon.telemetry.collector import Collector, collecting


def load_measured(record_dir: Path) -> tuple[Collector, str]:
    """What the collector got, and the page of /metrics when nothing went on any more."""

    async def run() -> tuple[Collector, str]:
        async with collecting() as collector:
            async with serving(record_dir, otlp_metrics_endpoint=collector.url) as served:
                await asyncio.gather(*[served.complete(max_tokens=4) for _ in range(5)])
                await served.until(lambda: not served.service.engine.live.all())
                async with served.session.get("/metrics") as response:
                    page = await response.text()
            return collector, page

    return asyncio.run(run())


def test_what_is_sent_is_what_is_scraped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    collector, page = load_measured(tmp_path / "run")
    for name, series in (
        ("vllm.generation_tokens", "vllm:generation_tokens_total"),
        ("vllm.num_requests_running", "vllm:num_requests_running"),
        ("reprise.steps", "reprise:steps_total"),
    ):
        (value,) = [float(line.split()[-1]) for line in page.splitlines() if line.startswith(series + "{")]
        assert [point.as_double for point in _points(collector, name)] == [value]
    assert len(_points(collector, "reprise.decisions")) > 20


def test_genai_durations_are_the_recordings(tmp_path: Path) -> None:
    collector, _page = load_measured(tmp_path / "run")
    totals = read_timeline(Run.open(tmp_path / "run")).totals
    for name, histogram in (
        ("request.duration", totals.e2e_request_latency_seconds),
        ("time_to_first_token", totals.time_to_first_token_seconds),
        ("time_per_output_token", totals.request_time_per_output_token_seconds),
    ):
        (point,) = collector.metrics[f"gen_ai.server.{name}"].histogram.data_points
        assert (point.count, point.sum) == (histogram.count, pytest.approx(histogram.sum))
        names = {pair.key for pair in point.attributes}
        required = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"}
        assert names == required | {"server.address", "server.port"}
    assert list(point.explicit_bounds)[:3] == [0.01, 0.025, 0.05]


def _points(collector: Collector, name: str) -> list[Any]:
    metric = collector.metrics[name]
    return list(getattr(metric, metric.WhichOneof("data") or "").data_points)
