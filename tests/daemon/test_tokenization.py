"""/tokenize and /detokenize, echoed prompts, and what the server says where it has nothing."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.daemon.served import MODEL, Served, completion
from tests.daemon.test_server import Tell, shared_server

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server(max_num_seqs=8, api_key="secret")


def test_a_text_becomes_tokens_and_these_the_text(tell: Tell) -> None:
    async def story(served: Served) -> None:
        status, answer = await served.post("/tokenize", {"model": MODEL, "prompt": "grün", "return_token_strs": True})
        assert (status, answer["count"], answer["max_model_len"]) == (200, 5, 512)
        assert answer["tokens"] == list("grün".encode())
        assert answer["token_strs"] == ["g", "r", "\ufffd", "\ufffd", "n"]
        assert (await served.post("/detokenize", {"tokens": answer["tokens"]}))[1] == {"prompt": "grün"}
        assert (await served.post("/tokenize", {"prompt": "x"}))[1]["token_strs"] is None

    tell(story)


def test_a_chat_has_the_tokens_that_its_answer_counts(tell: Tell) -> None:
    async def story(served: Served) -> None:
        _, answer = await served.post("/tokenize", {"messages": HELLO})
        _, chat = await served.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1})
        assert answer["count"] == chat["usage"]["prompt_tokens"]

    tell(story)


def test_what_cannot_be_tokenized_is_refused_by_name(tell: Tell) -> None:
    async def story(served: Served) -> None:
        for path, body, param in (
            ("/tokenize", {}, "prompt"),
            ("/tokenize", {"prompt": 5}, "prompt"),
            ("/tokenize", {"messages": []}, "messages"),
            ("/detokenize", {"tokens": [10**6]}, "tokens"),
            ("/detokenize", {}, "tokens"),
        ):
            status, answer = await served.post(path, body)
            assert (status, answer["error"]["param"]) == (400, param)
        assert (await served.post("/tokenize", {"model": "other", "prompt": "x"}))[0] == 404
        status, _ = await served.post("/tokenize", {"prompt": "x"}, headers={"Authorization": ""})
        assert status == 401

    tell(story)


def test_an_echoed_prompt_begins_the_answer_whole_and_streamed(tell: Tell) -> None:
    async def story(served: Served) -> None:
        plain = (await served.complete(prompt="once "))[1]["choices"][0]["text"]
        _, echoed = await served.complete(prompt=["once ", [97, 98]], echo=True, n=2)
        texts = [choice["text"] for choice in echoed["choices"]]
        assert texts[0] == "once " + plain
        assert [text[:2] for text in texts] == ["on", "on", "ab", "ab"]
        lines = await served.events("/v1/completions", completion(prompt="once ", echo=True))
        assert "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1]) == texts[0]

    tell(story)


def test_an_endpoint_that_is_not_here_says_what_is_missing(tell: Tell) -> None:
    async def story(served: Served) -> None:
        for path, what in (("/v1/embeddings", "embeddings"), ("/v1/audio/speech", "audio"), ("/rerank", "reranking")):
            status, answer = await served.post(path, {})
            assert (status, answer["error"]["code"]) == (404, "endpoint_not_supported")
            assert answer["error"]["message"].startswith(what)
        status, answer = await served.post("/v1/nowhere", {})
        assert (status, answer["error"]["code"]) == (404, "not_found")

    tell(story)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nExpect: 100-\x85\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_the_apis_json(tell: Tell, sent: bytes) -> None:
    async def story(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.base_url.rsplit(":", 1)[1]))
        writer.write(sent)
        async with asyncio.timeout(10):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
        assert b"application/json" in head
        assert json.loads(body)["error"]["code"] == "malformed_http"

    tell(story)


@pytest.mark.parametrize(
    "headers", [b"x: " + b"y" * 20_000 + b"\r\n", b"".join(b"x%d: y\r\n" % number for number in range(200))]
)
def test_a_head_that_is_too_large_is_told_the_bounds(tell: Tell, headers: bytes) -> None:
    async def story(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.base_url.rsplit(":", 1)[1]))
        writer.write(b"GET /health HTTP/1.1\r\n" + headers + b"\r\n")
        async with asyncio.timeout(10):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head[9:12] == b"431"
        error = json.loads(body)["error"]
        assert (error["code"], "64 headers" in error["message"]) == ("head_too_large", True)

    tell(story)
