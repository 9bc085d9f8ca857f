"""/metrics: the timeline's figures under the names that dashboards, autoscalers and routers already read.

Nothing is counted here: each scrape reads the timeline, so the same stream gives the same figures live and afterwards.
Names and labels are vLLM's (prefix `vllm:`); what it has no word for is `reprise:`. This file must not know HTTP.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from daemon.service import Service
from engine.core.decisions import DeferReason, FinishReason, RejectReason
from engine.core.events import AuditResult
from recorder.histogram import Histogram
from recorder.totals import Totals

# vLLM's words for how requests end.
_SUCCESS_WORDS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.KV_CACHE_EXHAUSTED: "length",
    FinishReason.CANCELLED: "abort",
    FinishReason.DRAINED: "abort",
    FinishReason.EXPIRED: "abort",
    FinishReason.FAILED: "error",
    FinishReason.LOST: "error",
}
_HISTOGRAMS = {
    "time_to_first_token_seconds": "Arrival to first token.",
    "inter_token_latency_seconds": "Gap between two neighbouring tokens of a request.",
    "request_time_per_output_token_seconds": "Mean gap between the tokens of a request.",
    "e2e_request_latency_seconds": "Arrival to end.",
    "request_queue_time_seconds": "Arrival to first admission.",
    "request_prefill_time_seconds": "First admission to first token.",
    "request_decode_time_seconds": "First token to last token.",
    "request_inference_time_seconds": "First admission to last token.",
    "request_prompt_tokens": "Prompt tokens per request.",
    "request_generation_tokens": "Output tokens per request.",
    "request_params_max_tokens": "Output tokens a request may have.",
    "request_num_preemptions": "Preemptions per request.",
    "iteration_tokens": "Tokens computed per step.",
}


class MetricsPage:
    """`render` gives the page as it stands now."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_TimelineCollector(service))

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _TimelineCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service
        self._labels = {"model_name": service.served_names[0], "engine": "0"}

    def describe(self) -> Iterable[Metric]:
        return []  # spares the registry a collection before the engine is there

    def collect(self) -> Iterator[Metric]:
        totals = self._service.engine.timeline.totals
        yield from self._gauges()
        yield from self._vllm_counters(totals)
        yield from self._histograms(totals)
        yield from self._reprise_counters(totals)

    def _gauges(self) -> Iterator[Metric]:
        timeline = self._service.engine.timeline
        yield self._gauge("vllm:num_requests_running", "Requests that run.", timeline.num_running)
        yield self._gauge(
            "vllm:num_requests_waiting", "Requests that wait, preempted ones included.", timeline.num_waiting
        )
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of KV blocks that requests hold.", timeline.kv_cache_usage)
        by_reason = _by(DeferReason, timeline.waiting_by_reason)
        yield self._gauge("vllm:num_requests_waiting_by_reason", "Requests that wait, by why.", by_reason, "reason")
        yield self._gauge("reprise:kv_blocks", "KV blocks in the pool.", timeline.num_kv_blocks)
        yield self._gauge("reprise:kv_blocks_free", "KV blocks free or evictable.", timeline.num_blocks_free)
        yield self._gauge("reprise:thrashing", "1 while too much is computed again.", float(timeline.is_thrashing))
        yield self._gauge("reprise:watermark_blocks", "KV blocks an admission leaves free.", timeline.watermark_blocks)
        yield self._gauge("reprise:host_blocks", "KV blocks in the host pool.", timeline.num_host_blocks)
        used = timeline.num_host_blocks_used
        yield self._gauge("reprise:host_blocks_used", "Host blocks that swapped requests have.", used)
        longest = timeline.totals.longest_cascade
        yield self._gauge("reprise:longest_cascade", "Preemptions of the longest chain so far.", longest)
        limits = self._service.engine.supervisor.info.get("limits")
        if limits:
            info = {name: str(value) for name, value in limits.items()}
            info["num_gpu_blocks"] = info["num_kv_blocks"]  # the name that routers read it by
            family = GaugeMetricFamily("vllm:cache_config_info", "The engine's limits.", labels=[*self._labels, *info])
            family.add_metric([*self._labels.values(), *info.values()], 1)
            yield family

    def _vllm_counters(self, totals: Totals) -> Iterator[Metric]:
        ended = dict.fromkeys(_SUCCESS_WORDS.values(), 0)
        for reason, word in _SUCCESS_WORDS.items():
            ended[word] += totals.finished[reason]
        rejected = _by(RejectReason, totals.rejected)
        yield self._counter("vllm:prompt_tokens", "Prompt tokens of requests that got a token.", totals.prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens emitted.", totals.generation_tokens)
        yield self._counter("vllm:request_success", "Requests that ended, by how.", ended, "finished_reason")
        yield self._counter("vllm:admission_rejections", "Requests refused, by why.", rejected, "reason")
        yield self._counter("vllm:num_preemptions", "Preemptions.", totals.num_preemptions)
        yield self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up.", totals.prefix_cache_queries)
        yield self._counter("vllm:prefix_cache_hits", "Prompt tokens found.", totals.prefix_cache_hits)
        yield self._counter("vllm:prompt_tokens_cached", "Prompt tokens found.", totals.prefix_cache_hits)

    def _histograms(self, totals: Totals) -> Iterator[Metric]:
        for name, meaning in _HISTOGRAMS.items():
            suffix = "_total" if name == "iteration_tokens" else ""  # vLLM's name ends so, although it is a histogram
            yield self._histogram(f"vllm:{name}{suffix}", meaning, getattr(totals, name))
        longest = "Output tokens of the longest choice."
        yield self._histogram("vllm:request_max_num_generation_tokens", longest, totals.request_generation_tokens)

    def _reprise_counters(self, totals: Totals) -> Iterator[Metric]:
        engine = self._service.engine
        written = engine.recorder.totals
        finished = _by(FinishReason, totals.finished)
        deferrals = _by(DeferReason, totals.deferrals)
        yield self._counter("reprise:requests", "Requests taken in.", totals.num_requests)
        yield self._counter(
            "reprise:requests_finished", "Requests that ended, by the engine's reason.", finished, "reason"
        )
        yield self._counter("reprise:deferrals", "Explanations of waiting, by reason.", deferrals, "reason")
        yield self._counter("reprise:tokens_lost", "Computed tokens given up by preemptions.", totals.num_tokens_lost)
        yield self._counter("reprise:swaps", "Preemptions by swap.", totals.num_swaps)
        copied = {"out": totals.num_swapped_out_blocks, "in": totals.num_swapped_in_blocks}
        yield self._counter("reprise:swapped_blocks", "KV blocks copied to and from the host.", copied, "direction")
        yield self._counter("reprise:swap_seconds", "Time spent on these copies.", totals.swap_ns / 1e9)
        yield self._counter("reprise:cascades", "Chains of preemptions that caused one another.", totals.num_cascades)
        wrong = "Times that a KV block did not hold what was written to it."
        yield self._counter("reprise:kv_mismatch", wrong, totals.num_kv_mismatches)
        audits = _by(AuditResult, totals.audits)
        yield self._counter("reprise:audit_requests", "Requests computed again at idle, by result.", audits, "result")
        yield self._counter("reprise:audit_tokens", "Tokens compared in these.", totals.num_audited_tokens)
        yield self._counter("reprise:thrashings", "Times that thrashing began.", totals.num_thrashings)
        yield self._counter("reprise:evicted_blocks", "Cached blocks given up for new ones.", totals.num_evicted_blocks)
        yield self._counter("reprise:steps", "Steps executed.", totals.num_steps)
        yield self._counter("reprise:failed_steps", "Steps that raised.", totals.num_failed_steps)
        yield self._counter("reprise:execute_seconds", "Time in the model.", totals.execute_ns / 1e9)
        yield self._counter("reprise:sample_seconds", "Time in the sampler.", totals.sample_ns / 1e9)
        yield self._counter("reprise:step_seconds", "Time from planning steps to results.", totals.step_ns / 1e9)
        yield self._counter(
            "reprise:engine_restarts", "Engines started after one died.", engine.supervisor.num_restarts
        )
        handed_over, blamed = engine.handover.num_handed_over, engine.handover.num_blamed
        yield self._counter("reprise:requests_handed_over", "Requests that went on in another engine.", handed_over)
        yield self._counter("reprise:requests_blamed", "Requests ended for the engine died on them.", blamed)
        yield self._counter("reprise:recorder_bytes", "Bytes recorded.", written.num_bytes)
        yield self._counter("reprise:recorder_entries", "Entries recorded.", written.num_entries)
        yield self._counter("reprise:recorder_gap_entries", "Entries lost by the recorder.", written.num_gap_entries)
        yield self._counter(
            "reprise:recorder_early_entries",
            "Entries that clients saw before they were on file: the disk stalled.",
            written.num_early_entries,
        )
        removed = written.num_removed_segments
        yield self._counter("reprise:recorder_removed_segments", "Segments removed to keep the bounds.", removed)
        on_disk, pinned = written.num_directory_bytes, written.num_pinned_bytes
        yield self._gauge("reprise:recorder_directory_bytes", "Of all runs, as last counted.", on_disk)
        yield self._gauge("reprise:recorder_pinned_bytes", "Of pinned segments, as last counted.", pinned)
        stopped = float(written.is_stopped)
        yield self._gauge("reprise:recorder_stopped", "1 while entries are lost: disk full or failing.", stopped)

    def _gauge(
        self, name: str, meaning: str, value: float | Mapping[str, float], label: str | None = None
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, meaning, labels=self._label_names(label))
        self._fill(family, value)
        return family

    def _counter(
        self, name: str, meaning: str, value: float | Mapping[str, float], label: str | None = None
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(name, meaning, labels=self._label_names(label))
        self._fill(family, value)
        return family

    def _histogram(self, name: str, meaning: str, histogram: Histogram) -> HistogramMetricFamily:
        buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in histogram.cumulative()]
        family = HistogramMetricFamily(name, meaning, labels=self._label_names(None))
        family.add_metric(list(self._labels.values()), buckets=buckets, sum_value=histogram.sum)
        return family

    def _label_names(self, label: str | None) -> list[str]:
        return [*self._labels, *([label] if label else [])]

    def _fill(self, family: GaugeMetricFamily | CounterMetricFamily, value: float | Mapping[str, float]) -> None:
        values: Mapping[str, float] = value if isinstance(value, Mapping) else {"": value}
        for word, number in values.items():
            family.add_metric([*self._labels.values(), *([word] if word else [])], number)


def _by(reasons: type[StrEnum], counts: Counter[str]) -> dict[str, float]:
    """Every reason, also those that have not occurred: a series that is there from the start has no first jump."""
    return {str(reason): counts[reason] for reason in reasons}
