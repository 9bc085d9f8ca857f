"""/metrics speaks the names that dashboards know, and its figures are those of the recording afterwards."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from prometheus_client.core import Metric, Sample
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families

from replay.__main__ import main
from tests.daemon.served import serving
from tests.daemon.telemetry.pages import Page, scrape

VLLM_TYPES = {
    "gauge": """
        num_requests_running num_requests_waiting kv_cache_usage_perc num_requests_waiting_by_reason
        cache_config_info lora_requests_info
    """,
    "counter": """
        prompt_tokens generation_tokens request_success num_preemptions prefix_cache_queries prefix_cache_hits
        prompt_tokens_by_source prompt_tokens_cached admission_rejections
    """,
    "histogram": """
        time_to_first_token_seconds inter_token_latency_seconds e2e_request_latency_seconds
        request_time_per_output_token_seconds request_queue_time_seconds request_prefill_time_seconds
        request_decode_time_seconds request_inference_time_seconds request_prompt_tokens request_generation_tokens
        request_max_num_generation_tokens request_params_n request_params_max_tokens request_num_preemptions
        iteration_tokens_total
    """,
}
# Number of bounds, the first and the last, as vLLM has them; a panel's heat map shows them.
BUCKETS = {
    **dict.fromkeys(("time_to_first_token_seconds",), (22, 0.001, 2560)),
    **dict.fromkeys(("inter_token_latency_seconds", "request_time_per_output_token_seconds"), (19, 0.01, 80)),
    **dict.fromkeys(
        (
            *("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds"),
            *("request_decode_time_seconds", "request_inference_time_seconds"),
        ),
        (21, 0.3, 7680),
    ),
    **dict.fromkeys(("iteration_tokens_total",), (13, 1, 16384)),
    **dict.fromkeys(("request_num_preemptions",), (7, 1, 20)),
    **dict.fromkeys(("request_params_n",), (5, 1, 20)),
    **dict.fromkeys(
        (
            *("request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens"),
            "request_params_max_tokens",
        ),
        (18, 1, 500_000),
    ),
}
OWN_LABELS = {  # beside model_name and engine
    "num_requests_waiting_by_reason": {"reason"},
    "prompt_tokens_by_source": {"source"},
    "request_success": {"finished_reason"},
    "admission_rejections": {"reason"},
    "lora_requests_info": {"max_lora", "waiting_lora_adapters", "running_lora_adapters"},
}
DEAD = ("gpu_cache_usage_perc", "cpu_cache_usage_perc", "num_requests_swapped", "vllm:time_per_output_token_seconds")
NOT_IN_THE_STREAM = re.compile(
    r"reprise:(recorder_|engine_|requests_handed|requests_blamed|trace_spans|seconds_without|refused_calls|reloads|tls_)"
    r"|process_|reprise_engine_process_"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A loaded daemon's page when all was quiet, the same in OpenMetrics, and what export makes of its recording."""
    recording = tmp_path_factory.mktemp("scraped") / "run"

    async def run() -> tuple[str, str]:
        names = ("smollm2-135m-instruct",)
        tight = {"num_kv_blocks": 12, "block_size": 4, "max_model_len": 48, "reserve_output": "none"}
        async with serving(recording, served_model_name=names, audit_rate=1.0, **tight) as served:
            calls = [served.complete(prompt=[n + 1, *range(100, 110)], max_tokens=24) for n in range(4)]
            await asyncio.gather(*calls)
            assert (await served.complete(prompt=[*range(1, 60)]))[0] == 400
            await served.until(lambda: sum(served.service.engine.timeline.totals.audits.values()) == 4)
            return await scrape(served), await scrape(served, "application/openmetrics-text;version=1.0.0")

    plain, open_metrics = asyncio.run(run())
    out = recording.parent / "figures.prom"
    assert main(["export", str(recording), "--metrics", "-o", str(out)]) == 0
    return plain, open_metrics, out.read_text()


def test_the_recording_says_what_the_page_said(pages: tuple[str, str, str]) -> None:
    live, recorded = (_samples(text) for text in (pages[0], pages[2]))
    expected = {key: value for key, value in live.items() if not NOT_IN_THE_STREAM.match(key[0])}
    assert {key: value for key, value in recorded.items() if not NOT_IN_THE_STREAM.match(key[0])} == expected
    gaps = [value for key, value in recorded.items() if key[0] == "reprise:recorder_gap_entries_total"]
    assert gaps == [0.0]
    assert sum(value for key, value in live.items() if key[0] == "vllm:num_preemptions_total") > 0


def test_names_types_and_labels_are_vllms(pages: tuple[str, str, str]) -> None:
    families = {family.name: family for family in text_string_to_metric_families(pages[0])}
    for kind, names in VLLM_TYPES.items():
        for name in names.split():
            family = families[f"vllm:{name}"]
            assert family.type == kind, name
            assert all({"model_name", "engine"} <= sample.labels.keys() for sample in family.samples), name
            assert family.samples, name
            own = {label for sample in family.samples for label in sample.labels} - {"model_name", "engine", "le"}
            assert name == "cache_config_info" or own == OWN_LABELS.get(name, set()), name
    assert not [name for name in DEAD for line in pages[0].splitlines() if name in line]
    reasons = {sample.labels["finished_reason"] for sample in families["vllm:request_success"].samples}
    assert reasons == {"stop", "length", "abort", "error"}


def test_every_histogram_of_vllms_is_held_against_its_buckets() -> None:
    assert set(BUCKETS) == set(VLLM_TYPES["histogram"].split())


def test_no_name_of_a_tenant_becomes_a_label(pages: tuple[str, str, str]) -> None:
    """Their number has no bound, and the page needs no key."""
    families = {family.name: family for family in text_string_to_metric_families(pages[0])}
    (info,) = families["vllm:cache_config_info"].samples
    assert {"block_size", "num_gpu_blocks", "max_num_seqs"} <= info.labels.keys()
    assert not [name for name in {*info.labels, *families} if "tenant_weights" in name]
    assert all("tenant" not in sample.labels for family in families.values() for sample in family.samples)


@pytest.mark.parametrize("name", BUCKETS)
def test_buckets_are_vllms(name: str, pages: tuple[str, str, str]) -> None:
    page = Page(pages[0])
    bounds = [float(sample.labels["le"]) for sample in page.samples_of(f"vllm:{name}_bucket")]
    assert (len(bounds) - 1, bounds[0], bounds[-2], bounds[-1]) == (*BUCKETS[name], float("inf"))
    assert bounds == sorted(set(bounds))


def test_every_decision_has_its_reason(pages: tuple[str, str, str]) -> None:
    page = Page(pages[0])
    counts = {
        (sample.labels["decision"], sample.labels["reason"]): sample.value
        for sample in page.samples_of("reprise:decisions_total")
    }
    assert counts["RequestAdmitted", ""] >= 4
    assert counts["RequestRejected", "prompt_too_long"] == 1
    assert counts["RequestPreempted", "out_of_blocks"] == page.value("vllm:num_preemptions_total")
    assert counts["RequestFinished", "length"] == 4
    assert counts["StarvationSeen", "passed_over"] == 0, "there from the start"


def test_open_metrics_names_the_trace_of_a_buckets_latest_request(pages: tuple[str, str, str]) -> None:
    families: dict[str, Metric] = {
        family.name: family
        for family in parse_open_metrics(_without_total_histogram(pages[1]))  # type: ignore[no-untyped-call]
    }
    exemplars = [
        sample.exemplar for sample in _buckets(families["vllm:e2e_request_latency_seconds"]) if sample.exemplar
    ]
    assert exemplars
    for exemplar in exemplars:
        assert re.fullmatch("[0-9a-f]{32}", exemplar.labels["trace_id"])
    assert set(Page(pages[0]).names) == set(_names(pages[1])), "names are the same in both formats"


def _without_total_histogram(text: str) -> str:
    """This parser takes no histogram with the name that vLLM gave this one."""
    return "".join(line for line in text.splitlines(keepends=True) if "vllm:iteration_tokens_total" not in line)


def _names(text: str) -> Iterator[str]:
    return (re.split("[ {]", line)[0] for line in text.splitlines() if not line.startswith("#"))


def _buckets(family: Metric) -> list[Sample]:
    return [sample for sample in family.samples if sample.name.endswith("_bucket")]


def _samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in Page(text).samples}


def test_what_never_reaches_the_engine_is_counted_too() -> None:
    async def run() -> Page:
        async with serving(api_key="right") as served:
            for path in ("/v1/models", "/v1/embeddings"):
                async with served.session.get(path, headers={"Authorization": "Bearer wrong"}) as response:
                    assert response.status == 401
            async with served.session.get("/nowhere") as response:
                assert response.status == 404
            return Page(await scrape(served))

    page = asyncio.run(run())
    refused = {
        (sample.labels["status"], sample.labels["code"]): sample.value
        for sample in page.samples_of("reprise:refused_calls_total")
    }
    assert refused["401", "invalid_api_key"] == 2
    assert sum(value for (status, _code), value in refused.items() if status == "404") == 1
    assert refused["503", "queue_full"] == 0, "there from the start"
    assert page.value("process_open_fds") > 0
    assert page.value("reprise_engine_process_resident_memory_bytes") > 1e6
