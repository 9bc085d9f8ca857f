"""Spans that a collector gets while requests are served are those that the recording gives afterwards."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from recorder.spans.trace_ids import parse_traceparent
from replay.export.otlp import write_otlp
from replay.figures import read_timeline
from replay.lives import Run
from tests.daemon.served import Served, completion, serving
from tests.daemon.telemetry.collector import Collector, SeenSpan, collecting, seen_in_json

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SERVER, INTERNAL = 2, 1
TIGHT = {"num_kv_blocks": 12, "block_size": 4, "max_model_len": 48, "reserve_output": "none", "watermark_permille": 0}


async def complete(served: Served, name: str, prompt: list[int], **options: Any) -> int:
    headers = {"X-Request-Id": name, **options.pop("headers", {})}
    status, _answer = await served.post("/v1/completions", completion(prompt=prompt, **options), headers=headers)
    return status


async def mixed_load(served: Served) -> None:
    """Preemptions, a refusal, a request of a client that traces, and one that it does not want traced."""
    calls = [complete(served, f"r{n}", [n + 1, *range(100, 110)], max_tokens=24) for n in range(4)]
    await asyncio.gather(*calls)
    sampled, unsampled = (f"00-{TRACE_ID}-{PARENT_ID}-{flags}" for flags in ("01", "00"))
    assert await complete(served, "traced", [1], headers={"traceparent": sampled}) == 200
    assert await complete(served, "untraced", [2], headers={"traceparent": unsampled}) == 200
    assert await complete(served, "refused", [*range(1, 60)]) == 400


def load_traced(record_dir: Path | None, **options: Any) -> Collector:
    async def run() -> Collector:
        async with collecting() as collector:
            async with serving(record_dir, otlp_traces_endpoint=collector.url, **{**TIGHT, **options}) as served:
                await mixed_load(served)
            assert served.service.spans_sent.by_fate == {
                "exported": len(collector.spans),
                "failed": 0,
                "dropped": 0,
            }
            return collector

    return asyncio.run(run())


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Collector, Path]:
    """What the collector got, and the recording of it."""
    recording = tmp_path_factory.mktemp("traced") / "run"
    return load_traced(recording), recording


def exported(recording: Path) -> list[SeenSpan]:
    out = io.BytesIO()
    write_otlp(Run.open(recording), out)
    return [
        seen_in_json(span)
        for line in out.getvalue().splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def by_place(spans: list[SeenSpan]) -> dict[tuple[str, str], SeenSpan]:
    found = {(span.trace_id, span.span_id): span for span in spans}
    assert len(found) == len(spans)
    return found


def test_live_spans_are_those_of_the_recording(loaded: tuple[Collector, Path]) -> None:
    collector, recording = loaded
    live, recorded = by_place(collector.spans), by_place(exported(recording))
    untraced = {place for place, span in recorded.items() if span.attributes.get("reprise.request_id") == "untraced"}
    roots = {place[1] for place in untraced}
    left_out = {place for place, span in recorded.items() if place in untraced or span.parent_id in roots}
    assert untraced
    assert live == {place: span for place, span in recorded.items() if place not in left_out}
    assert {span.name for span in live.values()} >= {"llm_request", "queued", "prefill chunk", "decode", "preempted"}


def test_children_bear_the_recordings_figures(loaded: tuple[Collector, Path]) -> None:
    collector, recording = loaded
    spans = {span.request_id: span for span in read_timeline(Run.open(recording)).spans.values()}
    roots = {span.span_id: span for span in collector.spans if span.name == "llm_request"}
    models = {root.attributes[f"gen_ai.{side}.model"] for root in roots.values() for side in ("request", "response")}
    assert len(models) == 1
    assert {root.attributes["gen_ai.response.id"] for root in roots.values()} == {*spans} - {"untraced"}
    for root in roots.values():
        own = spans[root.attributes["gen_ai.response.id"]]
        assert root.kind == SERVER
        assert root.attributes["gen_ai.usage.input_tokens"] == own.num_prompt_tokens
        assert root.attributes["gen_ai.usage.output_tokens"] == own.num_output_tokens
        assert root.attributes["reprise.recording"] == "run"
        assert root.attributes["reprise.sequence"] <= root.attributes["reprise.end_sequence"]
        assert root.error == ("" if own.outcome == "length" else own.outcome)
        children = [span for span in collector.spans if span.parent_id == root.span_id]
        assert all(child.kind == INTERNAL and child.trace_id == root.trace_id for child in children)
        assert sum(child.name == "preempted" for child in children) == own.num_preemptions
        assert sum(child.name == "prefill chunk" for child in children) == own.num_prefill_chunks
        if own.queue_ns is not None and own.ttft_ns is not None:
            assert children[0].name == "queued"
            assert children[0].end_ns - children[0].begin_ns == own.queue_ns
            assert root.attributes["gen_ai.response.time_to_first_chunk"] == own.ttft_ns / 1e9
            assert root.end_ns - root.begin_ns == own.e2e_ns


def test_a_clients_trace_goes_on_and_its_sampling_is_honoured(loaded: tuple[Collector, Path]) -> None:
    collector, _recording = loaded
    (root,) = [span for span in collector.spans if span.trace_id == TRACE_ID and span.name == "llm_request"]
    assert root.parent_id == PARENT_ID
    assert root.attributes["reprise.request_id"] == "traced"
    assert not any(span.attributes.get("reprise.request_id") == "untraced" for span in collector.spans)


def test_older_names_are_there_when_asked_for(loaded: tuple[Collector, Path]) -> None:
    assert not any("gen_ai.usage.completion_tokens" in span.attributes for span in loaded[0].spans)
    collector = load_traced(None, otlp_vllm_names=True)
    roots = [span for span in collector.spans if span.name == "llm_request"]
    assert roots
    assert all("gen_ai.usage.completion_tokens" in root.attributes for root in roots)
    assert all("reprise.recording" not in root.attributes for root in roots), "there is none"
    assert all(resource["service.name"] == "reprise" for resource in collector.resources)


def test_the_samplers_variable_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    assert load_traced(None).spans == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
    ],
)
def test_a_malformed_traceparent_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_later_versions_traceparent_is_read_as_far_as_it_is_known() -> None:
    parent = parse_traceparent(f"01-{TRACE_ID}-{PARENT_ID}-01-more")
    assert parent is not None
    assert (f"{parent.trace_id:032x}", f"{parent.span_id:016x}", parent.is_sampled) == (TRACE_ID, PARENT_ID, True)
