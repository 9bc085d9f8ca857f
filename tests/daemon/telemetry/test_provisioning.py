"""Dashboards and alert rules read series that the daemon really gives, under labels that these really bear."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import daemon.telemetry
from tests.daemon.served import serving
from tests.daemon.telemetry.pages import Page, scrape
from tests.daemon.telemetry.promql import labels_grouped_by, selectors

FOLDER = Path(daemon.telemetry.__file__).parent / "provisioning"
SEVERITIES = {"info", "warning", "critical"}
# The panels of the Grafana dashboard that vLLM publishes, under the names of its version 1 engine.
_M = '{model_name="$model_name"}'
VLLM_DASHBOARD = [
    *(
        f"histogram_quantile({rank}, sum by(le) (rate(vllm:{name}_bucket{_M}[$__rate_interval])))"
        for name in ("e2e_request_latency_seconds", "inter_token_latency_seconds", "time_to_first_token_seconds")
        for rank in (0.5, 0.9, 0.95, 0.99)
    ),
    *(
        f"rate(vllm:{name}_sum{_M}[$__rate_interval]) / rate(vllm:{name}_count{_M}[$__rate_interval])"
        for name in ("e2e_request_latency_seconds", "inter_token_latency_seconds", "time_to_first_token_seconds")
    ),
    f"rate(vllm:prompt_tokens_total{_M}[$__rate_interval])",
    f"rate(vllm:generation_tokens_total{_M}[$__rate_interval])",
    f"vllm:num_requests_running{_M}",
    f"vllm:num_requests_waiting{_M}",
    f"vllm:kv_cache_usage_perc{_M}",
    f"sum by(le) (increase(vllm:request_prompt_tokens_bucket{_M}[$__rate_interval]))",
    f"sum by(le) (increase(vllm:request_generation_tokens_bucket{_M}[$__rate_interval]))",
    f"sum by(finished_reason) (increase(vllm:request_success_total{_M}[$__rate_interval]))",
    f"rate(vllm:request_queue_time_seconds_sum{_M}[$__rate_interval])",
    f"rate(vllm:request_prefill_time_seconds_sum{_M}[$__rate_interval])",
    f"rate(vllm:request_decode_time_seconds_sum{_M}[$__rate_interval])",
    f"rate(vllm:request_max_num_generation_tokens_sum{_M}[$__rate_interval])",
    f"rate(vllm:request_time_per_output_token_seconds_sum{_M}[$__rate_interval])",
    f"rate(vllm:request_inference_time_seconds_sum{_M}[$__rate_interval])",
    f"rate(vllm:prefix_cache_hits_total{_M}[5m]) / rate(vllm:prefix_cache_queries_total{_M}[5m])",
    f"rate(vllm:num_preemptions_total{_M}[$__rate_interval])",
    f"rate(vllm:iteration_tokens_total_count{_M}[$__rate_interval])",
]


@pytest.fixture(scope="module")
def page() -> Page:
    async def run() -> str:
        async with serving() as served:
            await served.complete()
            return await scrape(served)

    return Page(asyncio.run(run()))


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / "grafana/dashboards/reprise.json").read_text())
    return content


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def dashboard_queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


QUERIES = {
    "our dashboard": list(dashboard_queries()),
    "our alerts": [rule["expr"] for rule in rules()],
    "vLLM's dashboard": VLLM_DASHBOARD,
}


@pytest.mark.parametrize("source", QUERIES)
def test_every_query_finds_series(source: str, page: Page) -> None:
    for query in QUERIES[source]:
        read = selectors(query)
        assert read, query
        for selector in read:
            assert selector.finds_series(page), f"{selector} of {query}"


@pytest.mark.parametrize("source", QUERIES)
def test_every_label_that_is_grouped_by_is_there(source: str, page: Page) -> None:
    for query in QUERIES[source]:
        labels = [page.samples_of(selector.name)[0].labels.keys() for selector in selectors(query)]
        assert all(labels_grouped_by(query) <= names for names in labels), query


def test_all_that_is_measured_under_our_names_is_shown_or_watched(page: Page) -> None:
    """But for what another panel says as well."""
    shown = {
        selector.name
        for source in ("our dashboard", "our alerts")
        for query in QUERIES[source]
        for selector in selectors(query)
    }
    families = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in shown}
    measured = {
        name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for name in page.names
        if name.startswith("reprise:")
    }
    elsewhere = {
        *("reprise:requests_finished_total", "reprise:deferrals_total", "reprise:audit_tokens_total"),
        *("reprise:execute_seconds_total", "reprise:sample_seconds_total", "reprise:step_seconds_total"),
        *("reprise:swap_seconds_total", "reprise:swapped_blocks_total", "reprise:kv_blocks"),
        *("reprise:host_blocks", "reprise:host_blocks_used", "reprise:tokens_emitted_again_total"),
        *("reprise:recorder_entries_total", "reprise:recorder_removed_segments_total"),
    }
    assert measured - families == elsewhere


def test_panels_have_titles_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"]
        assert max(x for x, _y in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_each_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert rule["alert"].startswith("Reprise")
        assert rule["labels"]["severity"] in SEVERITIES
        assert rule["annotations"].keys() == {"summary", "action"}
    scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert [(FOLDER / name).exists() for name in scraped["rule_files"]] == [True]
