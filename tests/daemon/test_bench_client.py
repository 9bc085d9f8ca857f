"""One request against a real server that does what servers do: is slow, refuses, breaks off, talks nonsense."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from daemon.bench.client import Answer, measure
from daemon.bench.drive import Drive, drive
from daemon.bench.endpoint import Endpoint
from daemon.bench.events import MalformedEvent, Usage, parse_event
from daemon.bench.prompts import write_prompts
from daemon.bench.statistics import gaps_ns, tpot_ns, ttft_ns
from daemon.bench.workloads import ClosedLoop, OpenLoop, PlannedRequest, plan_workload
from engine.clock import Clock, ManualClock, SystemClock
from tests.daemon.bench_server import MODEL, BenchServer, Exchange, tokens_of, whole_answer

MS = 1_000_000


class StagedClock(ManualClock):
    """Goes on only when the server says so, and tells it when the client has looked."""

    def __init__(self) -> None:
        super().__init__(1_000_000 * MS)
        self.num_looks = 0

    def now_ns(self) -> int:
        self.num_looks += 1
        return super().now_ns()

    async def until_looked_at(self, num_looks: int) -> None:
        while self.num_looks < num_looks:
            await asyncio.sleep(0.001)


def ask(server: BenchServer, *, form: str = "text", timeout_s: float = 20, clock: Clock | None = None) -> Answer:
    """One request for 4 tokens."""

    async def go() -> Answer:
        endpoint = Endpoint(url=server.url, model=MODEL)
        request = PlannedRequest(0, "chat", 32, 4, None)
        (prompt,) = write_prompts(plan_workload("W2", 1, ClosedLoop(1, 1)), form, 1)
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True)) as session:
            body = endpoint.body(prompt, request.num_output_tokens)
            return await measure(session, endpoint, request, prompt.path, body, clock or SystemClock(), 0)

    return asyncio.run(go())


def run(server: BenchServer, load: ClosedLoop | OpenLoop) -> Drive:
    workload = plan_workload("W2", 1, load)
    endpoint = Endpoint(url=server.url, model=MODEL)
    prompts = write_prompts(workload, "text", 1)
    return asyncio.run(drive(endpoint, workload, prompts, clock=SystemClock(), timeout_s=20))


@pytest.mark.parametrize("form", ["text", "chat"])
def test_times_are_those_at_which_output_came(form: str) -> None:
    clock = StagedClock()

    async def slow(exchange: Exchange) -> web.StreamResponse:
        clock.advance(250 * MS)
        looks = clock.num_looks
        await exchange.begin()
        looks += exchange.is_chat  # a role without content is looked at and is no output
        await clock.until_looked_at(looks)
        clock.advance(50 * MS)
        for gap_ms in (10, 30, 5, 1000):
            await exchange.token("word ")
            looks += 1
            await clock.until_looked_at(looks)
            clock.advance(gap_ms * MS)
        await exchange.end(4)
        return exchange.response

    with BenchServer(slow) as server:
        answer = ask(server, form=form, clock=clock)
    assert answer.error == ""
    assert ttft_ns(answer) == 300 * MS
    assert gaps_ns(answer) == [10 * MS, 30 * MS, 5 * MS]
    assert tpot_ns(answer) == 15 * MS
    assert answer.ended_ns == 1345 * MS
    assert (answer.text, answer.finish_reason) == ("word " * 4, "length")
    assert (answer.num_output_tokens, answer.counted_by, answer.num_prompt_tokens) == (4, "usage", 77)


def test_a_request_is_greedy_streams_and_asks_for_usage() -> None:
    with BenchServer() as server:
        ask(server, form="ids")
    (body,) = server.bodies
    assert len(body.pop("prompt")) == 156
    assert body == {
        "model": MODEL,
        "max_tokens": 4,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


async def _refuse(exchange: Exchange) -> web.Response:
    return web.json_response({"error": {"message": "the queue\nis full"}}, status=503)


async def _break_off(exchange: Exchange) -> web.StreamResponse:
    await exchange.begin()
    await exchange.token("one")
    return exchange.response


async def _hang_up(exchange: Exchange) -> web.StreamResponse:
    await exchange.begin()
    await exchange.token("one")
    assert exchange.request.transport is not None
    exchange.request.transport.abort()
    return exchange.response


async def _fail_in_mid_stream(exchange: Exchange) -> web.StreamResponse:
    await exchange.begin()
    await exchange.token("one")
    await exchange.send({"error": {"message": "out of memory", "type": "server_error"}})
    await exchange.send_line(b"data: [DONE]")
    return exchange.response


async def _talk_nonsense(exchange: Exchange) -> web.StreamResponse:
    await exchange.begin()
    await exchange.token("one")
    await exchange.send_line(b"data: {not json")
    return exchange.response


async def _say_nothing(exchange: Exchange) -> web.StreamResponse:
    await exchange.begin()
    await exchange.end(0)
    return exchange.response


async def _answer_without_streaming(exchange: Exchange) -> web.Response:
    return web.json_response({"choices": [{"text": "all at once"}]})


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (_refuse, 'HTTP 503: {"error": {"message": "the queue\\nis full"}}', ""),
        (_break_off, "the stream was cut: neither [DONE] nor a finish reason came", "one"),
        (_hang_up, "ClientPayloadError: ", "one"),
        (_fail_in_mid_stream, "out of memory", "one"),
        (_talk_nonsense, "MalformedEvent: an event that is none of this API: {not json", "one"),
        (_say_nothing, "no output came", ""),
        (_answer_without_streaming, "no stream came, but application/json", ""),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_went_wrong_is_kept_with_what_had_come(answer: Any, error: str, text: str) -> None:
    with BenchServer(answer) as server:
        got = ask(server)
    assert got.error.startswith(error)
    assert got.text == text
    assert got.ended_ns > 0


def test_a_server_that_has_gone_is_an_error_of_the_request() -> None:
    with BenchServer() as server:
        pass
    assert ask(server).error.startswith("ClientConnectorError: ")


def test_a_request_that_does_not_end_is_given_up() -> None:
    has_left = asyncio.Event()

    async def stall(exchange: Exchange) -> web.StreamResponse:
        await exchange.begin()
        await exchange.token("one")
        await has_left.wait()
        return exchange.response

    with BenchServer(stall) as server:
        answer = ask(server, timeout_s=0.2)
    assert (answer.error, answer.text) == ("no end after 0.2 s", "one")


def test_comments_and_empty_lines_between_events_are_no_output() -> None:
    async def with_comments(exchange: Exchange) -> web.StreamResponse:
        await exchange.begin()
        await exchange.send_line(b": keep-alive")
        return await tokens_of(exchange, "")

    with BenchServer(with_comments) as server:
        answer = ask(server)
    assert (answer.error, len(answer.chunk_ns)) == ("", 4)


def test_a_closed_loop_has_as_many_requests_under_way_as_clients() -> None:
    barrier = asyncio.Barrier(3)

    async def wait_for_three(exchange: Exchange) -> web.StreamResponse:
        await barrier.wait()
        return await whole_answer(exchange)

    with BenchServer(wait_for_three) as server:
        done = run(server, ClosedLoop(num_clients=3, num_requests=9))
    assert max(server.num_live_at_arrival) == 3
    assert [(answer.index, answer.error) for answer in done.answers] == [(index, "") for index in range(9)]


def test_an_open_loop_does_not_wait_for_answers() -> None:
    all_came = asyncio.Event()

    async def wait_for_all(exchange: Exchange) -> web.StreamResponse:
        if exchange.num_live == 12:
            all_came.set()
        await all_came.wait()
        return await whole_answer(exchange)

    with BenchServer(wait_for_all) as server:
        done = run(server, OpenLoop(200.0, None, 12))
    assert [answer.error for answer in done.answers] == [""] * 12
    for answer in done.answers:
        assert answer.due_ns is not None
        assert answer.sent_ns >= answer.due_ns  # late if at all, and then it is known by how much


EVENTS = {
    "completion": ({"choices": [{"text": "a", "finish_reason": None}]}, (True, "a", ())),
    "chat": ({"choices": [{"delta": {"content": "a"}}]}, (True, "a", ())),
    "thinking": ({"choices": [{"delta": {"reasoning_content": "a"}}]}, (True, "a", ())),
    "ids": ({"choices": [{"text": "", "token_ids": [5, 6], "finish_reason": None}]}, (True, "", (5, 6))),
    "a token without text": ({"choices": [{"text": "", "finish_reason": None}]}, (True, "", ())),
    "the opening role": ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, (False, "", ())),
    "closing completion": ({"choices": [{"text": "", "finish_reason": "stop"}]}, (False, "", ())),
    "closing chat": ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, (False, "", ())),
    "closing with text": ({"choices": [{"text": "z", "finish_reason": "stop"}]}, (True, "z", ())),
    "null content": ({"choices": [{"delta": {"content": None}}]}, (False, "", ())),
    "no choices": ({"choices": [], "usage": None}, (False, "", ())),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_output_when_it_brings_a_token(name: str) -> None:
    body, expected = EVENTS[name]
    event = parse_event(json.dumps(body).encode())
    assert (event.is_output, event.text, event.token_ids) == expected


def test_usage_is_read_from_whatever_event_has_it() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    assert parse_event(json.dumps({"choices": [], "usage": usage}).encode()).usage == Usage(5, 7)
    assert parse_event(json.dumps({"usage": usage}).encode()).usage == Usage(5, 7)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"choices": 3}', b'{"choices": ["x"]}', b'{"usage": {"a": 1}}'])
def test_what_is_no_event_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedEvent):
        parse_event(data)
