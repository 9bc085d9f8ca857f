"""Headers of gateways and of the API's clients: what they ask for, and what they are told about trying again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from structlog.testing import capture_logs

from daemon import errors
from engine.core.decisions import RejectReason, RequestRejected
from engine.core.events import RequestArrived
from recorder.reader import Recording
from tests.daemon.scripted_engine import FAILING
from tests.daemon.served import MODEL, Served, completion
from tests.daemon.test_server import Tell, shared_server, tell_alone


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server()


def test_a_priority_in_a_header_counts_where_the_body_names_none(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        for name, header, body in (("a", "3", {}), ("b", "3", {"priority": 5}), ("c", "", {})):
            headers = {"X-Vllm-Priority": header, "X-Request-Id": name, "X-Session-ID": "s" * 300}
            status, _ = await served.post("/v1/completions", completion(**body), headers=headers)
            assert status == 200
        for wrong in ("-1", "10", "high", "1" * 50):
            status, answer = await served.post("/v1/completions", completion(), headers={"X-Vllm-Priority": wrong})
            assert (status, answer["error"]["param"]) == (400, "X-Vllm-Priority")

    tell_alone(story, record_dir=tmp_path / "run")
    events = [entry.event for entry in Recording.open(tmp_path / "run").entries()]
    classes = {event.request_id: event.priority for event in events if isinstance(event, RequestArrived)}
    assert classes == {"a": 3, "b": 5, "c": 0}


def test_sessions_are_in_the_log_cut_to_a_length(tell: Tell) -> None:
    async def story(served: Served) -> None:
        headers = {"X-Session-ID": "one" * 100, "x-llm-d-inference-fairness-id": "team"}
        await served.post("/v1/completions", completion(), headers=headers)

    with capture_logs() as logs:
        tell(story)
    (line,) = [line for line in logs if line["event"] == "request ended"]
    assert line["session_id"] == ("one" * 100)[:128]
    assert line["fairness_id"] == "team"


def test_a_request_that_would_fail_again_is_not_sent_again_by_the_apis_own_client(tell: Tell) -> None:
    async def story(served: Served) -> None:
        num_sent = 0

        async def count(request: Any) -> None:
            nonlocal num_sent
            num_sent += 1

        async with openai.AsyncOpenAI(base_url=f"{served.base_url}/v1", api_key="x", max_retries=2) as client:
            client._client.event_hooks["request"].append(count)
            with pytest.raises(openai.InternalServerError) as raised:
                await client.completions.create(model=MODEL, prompt=[FAILING, 1], max_tokens=2)
        assert raised.value.response.headers["x-should-retry"] == "false"
        assert num_sent == 1

    tell(story)


def test_when_to_try_again_is_told_to_the_millisecond_where_it_is_known() -> None:
    refused = RequestRejected(1, RejectReason.QUEUE_FULL, 0, 8, 2_340)
    assert errors.rejected(refused, 5).retry_headers() == {"Retry-After": "3", "retry-after-ms": "2340"}
    assert errors.draining().retry_headers() == {"Retry-After": "5", "retry-after-ms": "5000"}
    assert errors.bad_request("no").retry_headers() == {}
