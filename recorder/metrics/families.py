"""Families of series under a fixed set of labels. It must not know what is measured.

Histograms bring exemplars: the trace of the latest request in each bucket. They are shown in OpenMetrics only.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily

from recorder.histogram import Histogram
from recorder.spans.trace_ids import trace_id_of

_Buckets = list[tuple[str, float] | tuple[str, float, Exemplar]]


class Families:
    """Makes families whose series all bear `labels`; a value may be a number, or numbers by one more label's value."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = dict(labels)

    def gauge(
        self, name: str, meaning: str, value: float | Mapping[str, float], label: str | None = None
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, meaning, labels=self._names(label))
        self._fill(family, value)
        return family

    def counter(
        self, name: str, meaning: str, value: float | Mapping[str, float], label: str | None = None
    ) -> CounterMetricFamily:
        """`name` without `_total`, which is shown behind it."""
        family = CounterMetricFamily(name, meaning, labels=self._names(label))
        self._fill(family, value)
        return family

    def counter_by(
        self, name: str, meaning: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
    ) -> CounterMetricFamily:
        """By several labels."""
        family = CounterMetricFamily(name, meaning, labels=[*self.labels, *labels])
        for words, value in values.items():
            family.add_metric([*self.labels.values(), *words], value)
        return family

    def info(self, name: str, meaning: str, values: Mapping[str, str]) -> GaugeMetricFamily:
        """A series of value 1 that bears texts as labels."""
        family = GaugeMetricFamily(name, meaning, labels=[*self.labels, *values])
        family.add_metric([*self.labels.values(), *values.values()], 1)
        return family

    def histogram(
        self, name: str, meaning: str, histogram: Histogram | Mapping[str, Histogram], label: str | None = None
    ) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, meaning, labels=self._names(label))
        by_word = histogram if isinstance(histogram, Mapping) else {"": histogram}
        for word, one in by_word.items():
            family.add_metric([*self.labels.values(), *([word] if word else [])], _buckets(one), one.sum)
        return family

    def _names(self, label: str | None) -> list[str]:
        return [*self.labels, *([label] if label else [])]

    def _fill(self, family: GaugeMetricFamily | CounterMetricFamily, value: float | Mapping[str, float]) -> None:
        values: Mapping[str, float] = value if isinstance(value, Mapping) else {"": value}
        for word, number in values.items():
            family.add_metric([*self.labels.values(), *([word] if word else [])], number)


def by_reason(reasons: type[StrEnum], counts: Mapping[str, float]) -> dict[str, float]:
    """Every reason, also those that have not occurred: a series that is there from the start has no first jump."""
    return by_word([str(reason) for reason in reasons], counts)


def by_word(words: Iterable[str], counts: Mapping[str, float]) -> dict[str, float]:
    return {word: counts.get(word, 0) for word in words}


def _buckets(histogram: Histogram) -> _Buckets:
    buckets: _Buckets = []
    for place, (bound, count) in enumerate(histogram.cumulative()):
        upper = "+Inf" if bound == float("inf") else str(bound)
        exemplar = histogram.exemplars.get(place)
        if exemplar is None:
            buckets.append((upper, count))
            continue
        span = exemplar.span
        trace_id = trace_id_of(span.request_id, span.arrival_ns, span.trace_context)
        buckets.append((upper, count, Exemplar({"trace_id": f"{trace_id:032x}"}, exemplar.value)))
    return buckets
