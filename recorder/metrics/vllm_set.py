"""The timeline under vLLM's names, labels and buckets, which dashboards, autoscalers and inference gateways read.

Names that vLLM has given up (`gpu_cache_usage_perc`, `num_requests_swapped`, `time_per_output_token_seconds` and
others) are left out: a panel that reads them shows an old server.

Source: vllm/v1/metrics/loggers.py and buckets.py; the model server protocol of gateway-api-inference-extension.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from engine.core.decisions import DeferReason, FinishReason, RejectReason
from recorder.metrics.families import Families, by_reason
from recorder.timeline import Timeline
from recorder.totals import Totals

# vLLM's words for how requests end.
SUCCESS_WORDS = {
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
    "request_params_n": "Choices per request.",
    "request_params_max_tokens": "Output tokens a request may have.",
    "request_num_preemptions": "Preemptions per request.",
    "iteration_tokens": "Tokens computed per step.",
}
_NO_LORA = {"max_lora": "0", "waiting_lora_adapters": "", "running_lora_adapters": ""}


def vllm_families(timeline: Timeline, make: Families) -> Iterator[Metric]:
    yield from _gauges(timeline, make)
    yield from _counters(timeline.totals, make)
    for name, meaning in _HISTOGRAMS.items():
        suffix = "_total" if name == "iteration_tokens" else ""  # vLLM's name ends so, although it is a histogram
        yield make.histogram(f"vllm:{name}{suffix}", meaning, getattr(timeline.totals, name))
    longest = "Output tokens of the longest choice."
    yield make.histogram("vllm:request_max_num_generation_tokens", longest, timeline.totals.request_generation_tokens)


def _gauges(timeline: Timeline, make: Families) -> Iterator[Metric]:
    waiting = timeline.num_waiting
    yield make.gauge("vllm:num_requests_running", "Requests that run.", timeline.num_running)
    yield make.gauge("vllm:num_requests_waiting", "Requests that wait, preempted ones included.", waiting)
    reasons = by_reason(DeferReason, timeline.waiting_by_reason)
    yield make.gauge("vllm:num_requests_waiting_by_reason", "Requests that wait, by why.", reasons, "reason")
    yield make.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks that requests hold.", timeline.kv_cache_usage)
    if timeline.limits is not None:
        limits = timeline.limits.to_dict()
        del limits["tenant_weights"]  # any number of names, which are nobody's business
        info = {name: str(value) for name, value in limits.items()}
        info["num_gpu_blocks"] = info["num_kv_blocks"]  # the name that routers read it by
        yield make.info("vllm:cache_config_info", "The engine's limits.", info)
    yield make.info("vllm:lora_requests_info", "No adapters are served.", _NO_LORA)


def _counters(totals: Totals, make: Families) -> Iterator[Metric]:
    ended = dict.fromkeys(SUCCESS_WORDS.values(), 0)
    for reason, word in SUCCESS_WORDS.items():
        ended[word] += totals.finished[reason]
    hits = totals.prefix_cache_hits
    sources = {
        "local_compute": totals.prefix_cache_queries - hits,
        "local_cache_hit": hits,
        "external_kv_transfer": 0,
    }
    yield make.counter("vllm:prompt_tokens", "Prompt tokens of requests that got a token.", totals.prompt_tokens)
    yield make.counter("vllm:prompt_tokens_by_source", "Prompt tokens, by where they came from.", sources, "source")
    yield make.counter("vllm:prompt_tokens_cached", "Prompt tokens found.", hits)
    yield make.counter("vllm:generation_tokens", "Tokens emitted.", totals.generation_tokens)
    yield make.counter("vllm:request_success", "Requests that ended, by how.", ended, "finished_reason")
    rejected = by_reason(RejectReason, totals.rejected)
    yield make.counter("vllm:admission_rejections", "Requests refused, by why.", rejected, "reason")
    yield make.counter("vllm:num_preemptions", "Preemptions.", totals.num_preemptions)
    yield make.counter("vllm:prefix_cache_queries", "Prompt tokens looked up.", totals.prefix_cache_queries)
    yield make.counter("vllm:prefix_cache_hits", "Prompt tokens found.", hits)
