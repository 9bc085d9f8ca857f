"""The server over a real socket and a real engine process: answers, refusals, probes, and clients that leave."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import uvloop

from recorder.reader import Recording
from tests.daemon.scripted_engine import FAILING, STUCK
from tests.daemon.served import MODEL, Served, completion, serving

KEY = "secret"
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


Story = Callable[[Served], Coroutine[Any, Any, None]]
Tell = Callable[[Story], None]


def tell_alone(story: Story, record_dir: Path | None = None, **options: Any) -> None:
    """The story with a server of its own, on the event loop that the daemon uses."""

    async def told() -> None:
        async with serving(record_dir, **options) as served:
            await story(served)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())


def shared_server(**options: Any) -> Iterator[Tell]:
    """One server for many stories, told one after the other."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        context = serving(**options)
        served = runner.run(context.__aenter__())
        yield lambda story: runner.run(story(served))
        runner.run(context.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server(api_key=KEY, max_num_seqs=8)


@pytest.fixture(scope="module")
def tell_small() -> Iterator[Tell]:
    """One request at a time, one that waits, few blocks, small bodies, impatient comments."""
    yield from shared_server(
        max_num_seqs=1, max_num_queued_reqs=1, num_kv_blocks=16, max_body_size=4096, keep_alive_interval=0.05
    )


def test_a_completion_streams_the_same_text_as_it_gives_whole(tell: Tell) -> None:
    async def story(served: Served) -> None:
        status, whole = await served.complete(logprobs=2, return_token_ids=True)
        assert status == 200
        assert whole["choices"][0]["finish_reason"] == "length"
        assert len(whole["choices"][0]["token_ids"]) == whole["usage"]["completion_tokens"] == 8
        assert len(whole["choices"][0]["logprobs"]["tokens"]) == 8
        lines = await served.events("/v1/completions", completion(logprobs=2, return_token_ids=True))
        assert lines[-1] == "[DONE]"
        chunks = [json.loads(line) for line in lines[:-1]]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
        token_ids = [token_id for chunk in chunks for token_id in chunk["choices"][0]["token_ids"]]
        assert token_ids == whole["choices"][0]["token_ids"]
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
        assert not any("usage" in chunk for chunk in chunks)

    tell(story)


def test_usage_ends_a_stream_that_asked_for_it(tell: Tell) -> None:
    async def story(served: Served) -> None:
        body = completion(stream_options={"include_usage": True})
        *chunks, last = [json.loads(line) for line in (await served.events("/v1/completions", body))[:-1]]
        assert all(chunk["usage"] is None for chunk in chunks)
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 8
        assert last["usage"]["prompt_tokens"] == 3

    tell(story)


def test_several_prompts_give_a_choice_each_the_same_as_alone(tell: Tell) -> None:
    async def story(served: Served) -> None:
        prompts = [[1, 2, 3], [4, 5], [1, 2, 3, 4]]
        alone = [(await served.complete(prompt=prompt, seed=5))[1]["choices"][0]["text"] for prompt in prompts]
        status, together = await served.complete(prompt=prompts, seed=5)
        assert status == 200
        assert [choice["text"] for choice in together["choices"]] == alone
        assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
        assert together["usage"]["completion_tokens"] == 24
        texts = ["", "", ""]
        for line in (await served.events("/v1/completions", completion(prompt=prompts, seed=5)))[:-1]:
            for choice in json.loads(line)["choices"]:
                texts[choice["index"]] += choice["text"]
        assert texts == alone

    tell(story)


def test_the_openai_client_reads_both_endpoints(tell: Tell) -> None:
    async def story(served: Served) -> None:
        url = f"{served.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            chat = await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5)
            assert chat.choices[0].message.role == "assistant"
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=HELLO,
                max_tokens=5,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
            chunks = [chunk async for chunk in stream]
            assert chunks[-1].usage is not None
            assert chunks[-1].usage.completion_tokens == 5
            with pytest.raises(openai.NotFoundError) as missing:
                await client.completions.create(model="other", prompt="x")
            assert missing.value.code == "model_not_found"
            with pytest.raises(openai.BadRequestError) as refused:
                await client.completions.create(model=MODEL, prompt="x", max_tokens=100_000)
            assert refused.value.param == "max_tokens"
            assert refused.value.request_id

    tell(story)


def test_a_refusal_by_the_core_is_plain_json_also_for_a_stream(tell_small: Tell) -> None:
    async def story(served: Served) -> None:
        for stream in (False, True):
            status, answer = await served.complete(prompt=[1] * 400, stream=stream)
            assert status == 400
            assert "400 tokens" in answer["error"]["message"]
            assert "256" in answer["error"]["message"]
            status, answer = await served.complete(prompt=[1] * 600, stream=stream)
            assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
            status, answer = await served.complete(max_tokens=5_000, stream=stream)
            assert (status, answer["error"]["param"]) == (400, "max_tokens")

    tell_small(story)


def test_a_full_queue_gets_503_and_says_when_to_come_back(tell_small: Tell) -> None:
    async def story(served: Served) -> None:
        async def one(number: int) -> tuple[int, str | None]:
            async with served.session.post("/v1/completions", json=completion(max_tokens=100)) as response:
                await response.read()
                return response.status, response.headers.get("Retry-After")

        results = await asyncio.gather(*[one(number) for number in range(8)])
        refused = [retry_after for status, retry_after in results if status == 503]
        assert 0 < len(refused) < 8
        assert all(retry_after and int(retry_after) >= 1 for retry_after in refused)

    tell_small(story)


def test_a_request_that_does_not_begin_within_its_queue_timeout_gets_504(tell_small: Tell) -> None:
    async def story(served: Served) -> None:
        long = asyncio.create_task(served.complete(max_tokens=100, ignore_eos=True))
        await asyncio.sleep(0.05)
        status, answer = await served.complete(queue_timeout_ms=20)
        assert status == 504
        assert answer["error"]["code"] == "queue_timeout"
        lines = await served.events("/v1/completions", completion(queue_timeout_ms=20))
        assert json.loads(lines[-2])["error"]["code"] == "queue_timeout"
        assert lines[-1] == "[DONE]"
        assert (await long)[0] == 200

    tell_small(story)


def test_a_tenant_with_too_many_waiting_gets_429_and_is_told_when_to_come_back() -> None:
    async def story(served: Served) -> None:
        async def one() -> tuple[int, str | None]:
            async with served.session.post("/v1/completions", json=completion(max_tokens=30)) as response:
                await response.read()
                return response.status, response.headers.get("Retry-After")

        results = await asyncio.gather(*[one() for _ in range(6)])
        refused = [retry_after for status, retry_after in results if status == 429]
        assert 0 < len(refused) < 6
        assert all(retry_after and int(retry_after) >= 1 for retry_after in refused)

    for tell in shared_server(max_num_seqs=1, max_num_queued_reqs_per_tenant=1):
        tell(story)


def test_every_error_is_the_apis_json(tell_small: Tell) -> None:
    async def story(served: Served) -> None:
        session = served.session
        cases = [
            (session.get("/nowhere"), 404),
            (session.get("/v1/completions"), 405),
            (session.post("/v1/completions", data=b"{"), 400),
            (session.post("/v1/completions", data=b'{"prompt": "' + b"x" * 5000 + b'"}'), 413),
            (session.post("/v1/completions", json=completion(), headers={"X-Request-Id": "a b"}), 400),
            (session.post("/v1/completions", data=b"x", headers={"Content-Encoding": "gzip"}), 400),
            (session.get("/v1/models/other"), 404),
            (session.post("/v1/chat/completions", json={"messages": [{"role": "jester", "content": "x"}]}), 400),
        ]
        for pending, status in cases:
            async with pending as response:
                assert response.status == status
                error = (await response.json())["error"]
                assert set(error) == {"message", "type", "param", "code"}
                assert "Traceback" not in error["message"]
                assert response.headers["X-Request-Id"]

    tell_small(story)


def test_json_is_read_whatever_the_content_type_says(tell: Tell) -> None:
    async def story(served: Served) -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        data = json.dumps(completion()).encode()
        async with served.session.post("/v1/completions", data=data, headers=headers) as response:
            assert response.status == 200

    tell(story)


def test_the_key_guards_the_api_and_leaves_the_probes_open(tell: Tell) -> None:
    async def story(served: Served) -> None:
        for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}):
            status, answer = await served.post("/v1/completions", completion(), headers=headers)
            assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        status, _ = await served.post("/v1/completions", completion(), headers={"Authorization": f"Bearer {KEY}"})
        assert status == 200
        for path in ("/health", "/ready", "/metrics", "/version"):
            async with served.session.get(path, headers={"Authorization": ""}) as response:
                assert response.status == 200

    tell(story)


def test_a_clients_request_id_is_adopted_and_cannot_be_used_twice_at_once(tell: Tell) -> None:
    async def story(served: Served) -> None:
        headers = {"X-Request-Id": "mine"}
        async with served.session.post("/v1/completions", json=completion(), headers=headers) as response:
            assert response.headers["X-Request-Id"] == "mine"
            assert (await response.json())["id"] == "cmpl-mine"
        long = served.session.post("/v1/completions", json=completion(max_tokens=400, stream=True), headers=headers)
        async with long as response:
            await response.content.readline()
            status, answer = await served.post("/v1/completions", completion(), headers=headers)
            assert (status, answer["error"]["code"]) == (400, "duplicate_request")
        await served.until(lambda: not len(served.service.engine.live))

    tell(story)


def test_a_seed_is_returned_and_gives_the_same_answer_again(tell: Tell) -> None:
    async def story(served: Served) -> None:
        async with served.session.post("/v1/completions", json=completion(seed=None)) as response:
            seed = int(response.headers["X-Reprise-Seed"])
            text = (await response.json())["choices"][0]["text"]
        _, again = await served.complete(seed=seed)
        assert again["choices"][0]["text"] == text

    tell(story)


def test_clients_that_leave_are_cancelled_once_and_leave_nothing_behind(tell: Tell) -> None:
    async def story(served: Served) -> None:
        await served.complete()
        totals = served.service.engine.timeline.totals
        num_before = totals.finished["cancelled"]
        num_files, num_tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())  # noqa: PTH208
        for stream, reads in ((True, True), (True, False), (False, False)):
            await asyncio.gather(*[leave(served, f"{stream}-{reads}-{i}", stream, reads) for i in range(20)])
        await served.until(lambda: not len(served.service.engine.live))
        await served.until(lambda: served.calls.num_open == 0)
        await served.until(lambda: len(asyncio.all_tasks()) <= num_tasks)
        assert len(os.listdir("/proc/self/fd")) <= num_files + 5  # noqa: PTH208
        assert totals.finished["cancelled"] - num_before == 60
        assert totals.cancels["client"] - num_before == 60
        timeline = served.service.engine.timeline
        assert (timeline.num_running, timeline.num_waiting, timeline.kv_cache_usage) == (0, 0, 0)

    async def leave(served: Served, request_id: str, stream: bool, reads: bool) -> None:
        task = asyncio.create_task(one(served, request_id, stream, reads))
        await served.until(lambda: request_id in served.service.engine.live or task.done())  # it may be quick
        if not reads:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def one(served: Served, request_id: str, stream: bool, reads: bool) -> None:
        body, headers = completion(max_tokens=500, stream=stream), {"X-Request-Id": request_id}
        async with served.session.post("/v1/completions", json=body, headers=headers) as response:
            await (response.content.readline() if reads else response.read())

    tell(story)


def test_a_failed_step_ends_a_stream_with_an_error_event_and_done(tell: Tell) -> None:
    async def story(served: Served) -> None:
        lines = await served.events("/v1/completions", completion(prompt=[FAILING]))
        assert lines[-1] == "[DONE]"
        assert json.loads(lines[-2])["error"]["code"] == "step_failed"
        status, answer = await served.complete(prompt=[FAILING])
        assert (status, answer["error"]["code"]) == (500, "step_failed")
        assert "asked to fail" not in answer["error"]["message"]
        assert (await served.complete())[0] == 200

    tell(story)


def test_a_drain_finishes_what_runs_and_refuses_what_is_new(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        running = asyncio.create_task(served.events("/v1/completions", completion(max_tokens=300)))
        await served.until(lambda: served.service.engine.timeline.totals.generation_tokens > 5)
        draining = asyncio.create_task(served.drained())
        await served.until(lambda: served.service.is_draining)
        async with served.session.post("/v1/completions", json=completion()) as response:
            assert response.status == 503
            assert (await response.json())["error"]["code"] == "draining"
            assert response.headers["Retry-After"]
            assert response.headers["Connection"] == "close"
        async with served.session.get("/ready") as response:
            assert response.status == 503
        async with served.session.get("/health") as response:
            assert response.status == 200
        lines = await running
        assert json.loads(lines[-2])["choices"][0]["finish_reason"] == "length"
        await draining

    tell_alone(story, tmp_path / "run")
    last = list(Recording.open(tmp_path / "run").entries())[-1]
    assert last.event == ("drained",)


@pytest.mark.parametrize("by", ["timeout", "second signal"])
def test_what_a_drain_cuts_ends_with_an_error_event(by: str) -> None:
    async def story(served: Served) -> None:
        running = asyncio.create_task(served.events("/v1/completions", completion(max_tokens=500)))
        await served.until(lambda: served.service.engine.timeline.totals.generation_tokens > 5)
        draining = asyncio.create_task(served.drained())
        if by == "second signal":
            served.second_signal.set()
        lines = await running
        assert lines[-1] == "[DONE]"
        assert json.loads(lines[-2])["error"]["code"] == "draining"
        await draining
        assert served.service.engine.timeline.totals.finished["drained"] == 1

    tell_alone(story, drain_timeout=0.1 if by == "timeout" else 60.0)


def test_a_stream_that_waits_is_kept_alive_by_comments(tell_small: Tell) -> None:
    async def story(served: Served) -> None:
        first = asyncio.create_task(served.complete(max_tokens=300))
        await served.until(lambda: served.service.engine.timeline.num_running == 1)
        async with served.session.post("/v1/completions", json=completion(stream=True)) as response:
            text = (await response.read()).decode()
        assert ": keep-alive\n\n" in text
        assert text.endswith("data: [DONE]\n\n")
        await first

    tell_small(story)


def test_metrics_equal_what_clients_got(tell: Tell) -> None:
    async def story(served: Served) -> None:
        before = await metrics(served)
        answers = [await served.complete(prompt=[number, 2, 3], max_tokens=4 + number) for number in range(1, 4)]
        after = await metrics(served)
        grown = {name: after[name] - before[name] for name in after}
        labels = f'engine="0",model_name="{MODEL}"'
        num_tokens = sum(answer["usage"]["completion_tokens"] for _status, answer in answers)
        assert grown[f"vllm:generation_tokens_total{{{labels}}}"] == num_tokens == 18
        assert grown[f"vllm:prompt_tokens_total{{{labels}}}"] == 9
        assert grown[f'vllm:request_success_total{{engine="0",finished_reason="length",model_name="{MODEL}"}}'] == 3
        assert grown[f"vllm:time_to_first_token_seconds_count{{{labels}}}"] == 3
        assert after[f"vllm:num_requests_running{{{labels}}}"] == 0
        assert grown[f'vllm:iteration_tokens_total_bucket{{engine="0",le="+Inf",model_name="{MODEL}"}}'] > 0
        dead = ("gpu_cache_usage_perc", "vllm:num_requests_swapped", "vllm:time_per_output_token_seconds")
        assert not any(name.startswith(dead) for name in after)

    async def metrics(served: Served) -> dict[str, float]:
        async with served.session.get("/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            lines = (await response.text()).splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    tell(story)


def test_a_step_that_does_not_end_turns_health_off_and_cannot_hold_up_the_end() -> None:
    async def story(served: Served) -> None:
        stuck = asyncio.create_task(served.events("/v1/completions", completion(prompt=[STUCK])))
        await served.until(lambda: served.service.engine.progress.stalled_seconds > 1.1)
        async with served.session.get("/health") as response:
            assert response.status == 503
            assert "no step has ended" in (await response.json())["reason"]
        async with asyncio.timeout(10):
            await served.drained()
            lines = await stuck
        assert lines[-1] == "[DONE]"
        assert json.loads(lines[-2])["error"]["code"] == "draining"

    tell_alone(story, stall_timeout=1.0, drain_timeout=0.1)
