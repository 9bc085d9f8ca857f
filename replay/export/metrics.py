"""A recording's figures as the daemon's /metrics showed them when its last entry had been handled: in Prometheus' text.

Both read the same timeline through `recorder/metrics/`. What no entry tells (restarts, bytes on disk) is left out; of
what the recorder lost, its gaps tell.
"""

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import BinaryIO

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from engine.core.limits import Limits
from recorder.metrics.families import Families
from recorder.metrics.own_set import own_families
from recorder.metrics.vllm_set import vllm_families
from recorder.timeline import Timeline
from replay.lives import Run


def write_metrics(run: Run, file: BinaryIO) -> dict[str, int]:
    """Returns what was read, in counts."""
    timeline = Timeline()
    for life in run.lives:
        timeline.begin_engine(Limits.from_dict(life.header.limits))
        for entry in life.entries():
            timeline.apply(entry)
    registry = CollectorRegistry()
    registry.register(_Collector(timeline, Families({"model_name": _model_name(run), "engine": "0"})))
    file.write(generate_latest(registry))
    return {"entries": timeline.num_entries, "requests": timeline.totals.num_requests}


def _model_name(run: Run) -> str:
    """As served without --served-model-name: a file's or folder's own name."""
    header = run.recording.header
    return PurePath(str(header.environment.get("model") or header.config.get("model", ""))).name


class _Collector(Collector):
    def __init__(self, timeline: Timeline, make: Families) -> None:
        self._timeline = timeline
        self._make = make

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from vllm_families(self._timeline, self._make)
        yield from own_families(self._timeline, self._make)
        lost = self._timeline.num_gap_entries
        yield self._make.counter("reprise:recorder_gap_entries", "Entries lost by the recorder.", lost)
