"""A histogram with fixed buckets, as Prometheus means it, and the buckets that the ecosystem's dashboards expect.

Bounds of the times, of step tokens and of preemptions as vLLM has them (vllm/v1/metrics/buckets.py), so that panels
made for it show ours; in seconds, tokens and times.
"""

from bisect import bisect_left
from typing import NamedTuple

from recorder.request_span import RequestSpan

TTFT_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_GAP_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_SECONDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REQUEST_TOKENS = tuple([digit * 10**power for power in range(6) for digit in (1, 2, 5)])
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
CHOICES = (1, 2, 5, 10, 20)
STEP_PHASE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Exemplar(NamedTuple):
    """A value of a bucket, and whose it was."""

    value: float
    span: RequestSpan


class Histogram:
    """
    bounds   ascending upper bounds; a value falls into the first bucket whose bound is not below it
    counts   values per bucket, not accumulated; the last one beyond all bounds
    exemplars
             bucket → the latest value in it that came with its request
    """

    __slots__ = ("bounds", "count", "counts", "exemplars", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0
        self.count = 0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
        self.count += 1

    def observe_of(self, value: float, span: RequestSpan) -> None:
        """Observe the value, and remember that it was this request's."""
        self.observe(value)
        self.exemplars[bisect_left(self.bounds, value)] = Exemplar(value, span)

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound, values up to it) per bucket, ending with (inf, count): the form of Prometheus."""
        total = 0
        rows: list[tuple[float, int]] = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows
