"""Requests that cannot be answered end at once, name the field at fault, and disturb nobody (s11, s12)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from engine.text.model_source import resolve_model
from engine.text.text_model import load_text_model
from tests.integration.client import Client, Stream, completion
from tests.integration.daemon_process import MODEL
from tests.integration.served import Served, check_error, serve
from tests.integration.trace import Trace, until_ended

ANSWER_SECONDS = 20.0  # a refusal takes a few milliseconds; a busy machine may need more than the cases' 3 s
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MISSING = object()
NUM_GOOD_TOKENS = 8


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("hostile")) as served:
        yield served


@pytest.fixture(scope="module")
def vocab_size() -> int:
    return load_text_model(resolve_model(MODEL)).vocab_size


# ── s11: an invalid request ends; it does not keep the connection open ───────────────────────────────────────────────


class Bad(NamedTuple):
    """One wrong field, and the word by which the refusal must name it."""

    field: str
    value: Any
    named: str

    def of(self, base: dict[str, Any]) -> dict[str, Any]:
        body = {**base, self.field: self.value}
        return {name: value for name, value in body.items() if value is not MISSING}


BAD_ANYWHERE = [
    *[Bad("n", value, "n") for value in (0, -1, 1.5, "2", True, 1_000_000)],
    *[Bad("max_tokens", value, "max_tokens") for value in (-1, 1.5, "8", 10_000_000_000)],
    *[Bad("stream", value, "stream") for value in ("true", 1)],
]
BAD_OPTIONS: list[Any] = [{"include_usage": "yes"}, [], 5]
BAD_STREAM_OPTIONS = [Bad("stream_options", value, "stream_options") for value in BAD_OPTIONS]
NO_PROMPTS: tuple[Any, ...] = ([], [[]], 5, {}, None, MISSING)
BAD_PROMPTS = {
    COMPLETIONS: [Bad("prompt", value, "prompt") for value in ("", *NO_PROMPTS)],
    CHAT: [
        Bad("max_tokens", 0, "max_tokens"),  # a completion may ask about its prompt alone
        *[Bad("messages", value, "messages") for value in ("", *NO_PROMPTS)],
    ],
}
ASKED: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "hello"},
    CHAT: {"messages": [{"role": "user", "content": "hello"}]},
}


def test_an_invalid_request_is_refused_before_the_first_byte_and_names_the_field(served: Served) -> None:
    async def case() -> None:
        async with served.connect() as client, undisturbed_stream(client, key=1):
            for path, stream in ((COMPLETIONS, True), (COMPLETIONS, False), (CHAT, True), (CHAT, False)):
                for bad in [*BAD_ANYWHERE, *BAD_STREAM_OPTIONS, *BAD_PROMPTS[path]]:
                    body = {"model": MODEL, "max_tokens": 8, **ASKED[path], **({"stream": True} if stream else {})}
                    await check_refused(client, path, bad.of(body), bad.named)

    asyncio.run(case())


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_more_output_than_the_context_holds_is_refused_with_the_figures(served: Served, path: str) -> None:
    async def case() -> None:
        async with served.connect() as client:
            for stream in (True, False):
                body = completion(max_tokens=1_000_000, stream=stream, **ASKED[path])
                message = await check_refused(client, path, body, "max_tokens")
                assert "1000000" in message

    asyncio.run(case())


def test_fields_that_are_null_or_empty_leave_the_stream_as_it_is(served: Served) -> None:
    """They are valid: each stream ends in order, and none has a usage chunk that nobody asked for."""
    options: list[Any] = [{}, None, {"include_usage": None}, {"include_usage": False}]
    fields: list[dict[str, Any]] = [{"n": None}, {"n": 1}]
    fields += [{"stream_options": value} for value in options]

    async def case() -> None:
        async with served.connect() as client:
            bodies = [
                (path, completion(**{"max_tokens": 2, "stream": True, **ASKED[path], **given}))
                for path in (COMPLETIONS, CHAT)
                for given in fields
            ]
            streams = [client.send(body, path=path) for path, body in bodies]
            for stream in await asyncio.gather(*[stream.until_end() for stream in streams]):
                assert stream.status == 200
                assert stream.error is None
                assert stream.is_done
                assert stream.finish_reason in ("length", "stop")
                assert all("usage" not in event and event["choices"] for event in stream.events)

    asyncio.run(case())


def test_a_body_that_is_no_json_object_is_refused(served: Served) -> None:
    bodies = [
        b"",
        b"{",
        b"[]",
        b'"hello"',
        b"null",
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "hello", "temperature": NaN}',
        b'{"prompt": "hello", "seed": ' + b"9" * 5_000 + b"}",
        b"[" * 100_000,
        b'{"prompt": ' + b"[" * 100_000,
    ]

    async def case() -> None:
        async with served.connect() as client:
            for path in (COMPLETIONS, CHAT):
                for body in bodies:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        status, answer = await client.post_raw(path, body)
                    assert status == 400, body[:80]
                    check_error(json.loads(answer)["error"])

    asyncio.run(case())


# ── s12: token ids outside the vocabulary are refused, wherever they appear ──────────────────────────────────────────


def bodies_beyond_the_vocabulary(vocab_size: int) -> list[tuple[str, dict[str, Any]]]:
    """(field at fault, body)."""
    biases: list[Any] = [{"999999999": -100}, {"-1": 5}, {"abc": 1}, {"10": 1e9}, {"10": "x"}, [], {str(vocab_size): 1}]
    biases += [{"1e3": 1}, {"9" * 30: 1}, {" 10": 1}, {"10": None}, {"10": True}]
    biases += [{str(token_id): 1 for token_id in range(60_000)}]
    prompts: list[Any] = [[vocab_size], [-1], [1.5], [10, "a"], [9223372036854775808], [[10], [vocab_size]], [True]]
    return [
        *[("logit_bias", {"logit_bias": bias}) for bias in biases],
        *[("stop_token_ids", {"stop_token_ids": ids, "min_tokens": 5}) for ids in ([999999999], [-1], [vocab_size])],
        *[("prompt", {"prompt": prompt}) for prompt in prompts],
    ]


def test_token_ids_outside_the_vocabulary_are_refused_and_never_join_a_batch(served: Served, vocab_size: int) -> None:
    async def case() -> tuple[list[str], Trace]:
        async with served.connect() as client, undisturbed_stream(client, key=3) as good:
            refused_ids = await send_beyond_the_vocabulary(client, vocab_size)
            last = completion(max_tokens=2, prompt="hello", logit_bias={str(vocab_size - 1): 1})
            assert (await client.ask(last)).status == 200
        return refused_ids, await until_ended(served.daemon, good.request_id)

    refused_ids, trace = asyncio.run(case())
    assert refused_ids
    assert not set(refused_ids) & set(trace.lives), "they are refused before the engine sees them, so in no step"
    assert {number for _position, plan in trace.plans for number, _start, _count in plan.rows} <= {
        life.arrival.request for life in trace.lives.values()
    }


async def send_beyond_the_vocabulary(client: Client, vocab_size: int) -> list[str]:
    """The ids of the refused requests."""
    ids = []
    for index, (named, fields) in enumerate(bodies_beyond_the_vocabulary(vocab_size)):
        ids.append(f"beyond-{index}")
        body = {"model": MODEL, "max_tokens": 8, "prompt": "hello", **fields}
        await check_refused(client, COMPLETIONS, body, named, request_id=ids[-1])
    return ids


def test_the_last_id_of_the_vocabulary_can_be_drawn_and_can_stop(served: Served, vocab_size: int) -> None:
    """The bound is exact: the id below it takes part in everything."""
    last_id = vocab_size - 1

    async def case() -> None:
        async with served.connect() as client:
            forced = await client.ask(completion(4, 5, output=3, logit_bias={str(last_id): 100}))
            assert forced.token_ids == [last_id] * 3
            stopped = await client.ask(
                completion(4, 5, output=3, logit_bias={str(last_id): 100}, stop_token_ids=[last_id])
            )
            assert stopped.finish_reason == "stop"
            assert stopped.token_ids == [last_id]

    asyncio.run(case())


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def undisturbed_stream(client: Client, key: int) -> AsyncIterator[Stream]:
    """A valid stream that runs all the while, however fast the engine is; its tokens are those that it has alone."""
    alone = await client.ask(completion(20, key, output=NUM_GOOD_TOKENS))
    good = client.send(completion(20, key, output=4_000, stream=True))
    await good.until_tokens(1)
    yield good
    await good.until_tokens(NUM_GOOD_TOKENS)
    assert good.ended_at == 0, "it was to run all the while"
    await good.leave()
    assert good.token_ids[:NUM_GOOD_TOKENS] == alone.token_ids
    assert good.text.startswith(alone.text)


async def check_refused(
    client: Client, path: str, body: dict[str, Any], named: str, request_id: str | None = None
) -> str:
    """400 as JSON within the time, naming the field in words and in `param`; returns the message."""
    stream: Stream = client.send(body, path=path, headers={"X-Request-Id": request_id} if request_id else None)
    await stream.until_end(timeout=ANSWER_SECONDS)
    assert stream.status == 400, (body, stream.answer)
    assert stream.headers["content-type"].startswith("application/json")
    assert stream.error is not None
    check_error(stream.error)
    assert stream.error["param"] == named
    assert re.search(rf"\b{named}\b", stream.error["message"])
    assert stream.error["type"] == "invalid_request_error"
    return str(stream.error["message"])
