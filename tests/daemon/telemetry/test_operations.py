"""Spans and durations say what was asked and whether it was streamed, while served and of the recording alike."""

import asyncio
from pathlib import Path
from typing import Any

from tests.daemon.served import Served, completion, serving
from tests.daemon.telemetry.collector import Collector, collecting
from tests.daemon.telemetry.test_traces import exported

MESSAGES = [{"role": "user", "content": "hi"}]
ASKED: dict[str, tuple[str, dict[str, Any], tuple[str, bool | None]]] = {
    "whole": ("/v1/completions", completion(max_tokens=2), ("text_completion", None)),
    "streamed": ("/v1/completions", completion(max_tokens=2, stream=True), ("text_completion", True)),
    "chat": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "n": 2}, ("chat", None)),
    "chat-streamed": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "stream": True}, ("chat", True)),
    "response": ("/v1/responses", {"input": "hi", "max_output_tokens": 2}, ("chat", None)),
}


async def ask_all(served: Served) -> None:
    for name, (path, body, _told) in ASKED.items():
        async with served.session.post(path, json=body, headers={"X-Request-Id": name}) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()


def told(spans: list[Any]) -> dict[str, tuple[str, bool | None]]:
    """By request id: the operation, and whether it was streamed, of the spans that have one."""
    roots = [span.attributes for span in spans if "gen_ai.operation.name" in span.attributes]
    return {it["reprise.request_id"]: (it["gen_ai.operation.name"], it.get("gen_ai.request.stream")) for it in roots}


def test_what_was_asked_is_told_live_and_afterwards(tmp_path: Path) -> None:
    async def run() -> Collector:
        async with collecting() as collector:
            endpoints = {"otlp_traces_endpoint": collector.url, "otlp_metrics_endpoint": collector.url}
            async with serving(tmp_path / "run", **endpoints) as served:
                await ask_all(served)
            return collector

    collector = asyncio.run(run())
    expected = {name: values for name, (_path, _body, values) in ASKED.items() if name != "chat"}
    expected |= {f"chat-{choice}": ASKED["chat"][2] for choice in (0, 1)}
    assert told(collector.spans) == told(exported(tmp_path / "run")) == expected
    points = collector.metrics["gen_ai.server.request.duration"].histogram.data_points
    counts = {
        pair.value.string_value: point.count
        for point in points
        for pair in point.attributes
        if pair.key == "gen_ai.operation.name"
    }
    assert counts == {"text_completion": 2, "chat": 4}
