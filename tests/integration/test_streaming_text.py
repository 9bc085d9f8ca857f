"""Text that comes in pieces is the text that comes whole: stop strings (s09), characters of several tokens (s10)."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.integration.client import Client, Stream, completion
from tests.integration.served import Served, serve

CHAT = "/v1/chat/completions"
ALPHABET = "Here is the alphabet: A B C D E F G H"
MANY_BYTES = "🦜🌍 é 漢字 한국 🦜🌍 é 漢字 한국 🦜🌍 é 漢字 한국 🦜🌍"
NUM_TOKENS = 20
BUDGETS = range(1, 13)
NOT_IN_ANY_ANSWER = "☃"
UNFINISHED = "\ufffd"
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("streaming")) as served:
        yield served


# ── s09: no part of a stop string reaches a streaming client ─────────────────────────────────────────────────────────


class Reference(NamedTuple):
    """An answer without stop strings, and a place k in it: what follows spans tokens and occurs once.

    ends   [i] = characters of the text up to the end of token i
    """

    text: str
    ends: list[int]
    k: int

    @property
    def stop(self) -> str:
        return self.text[self.k : self.k + 9]

    @property
    def never_completed(self) -> str:
        return self.text[self.k : self.k + 5] + NOT_IN_ANY_ANSWER

    @property
    def num_tokens_into_it(self) -> int:
        """Tokens after which the output ends inside the first five characters of the stop string."""
        return next(index + 1 for index, end in enumerate(self.ends) if self.k < end < self.k + 5)

    def num_tokens_to(self, num_chars: int) -> int:
        """Tokens up to and with the one that brings character `num_chars`."""
        return next(index + 1 for index, end in enumerate(self.ends) if end >= num_chars)


class Variant(NamedTuple):
    """One request of the case and what must come of it."""

    fields: dict[str, Any]
    text: str
    finish_reason: str
    num_tokens: int


def test_no_part_of_a_stop_string_reaches_a_streaming_client(served: Served) -> None:
    async def case() -> None:
        async with served.connect() as client:
            await asyncio.gather(check_stops(client, "/v1/completions"), check_stops(client, CHAT))

    asyncio.run(case())


async def check_stops(client: Client, path: str) -> None:
    reference = await ask_reference(client, path)
    await asyncio.gather(*[check_variant(client, path, reference, variant) for variant in variants(reference)])


async def ask_reference(client: Client, path: str) -> Reference:
    logprobs: dict[str, Any] = {"logprobs": 1} if path != CHAT else {"logprobs": True}
    answer = await client.ask(question(path, ALPHABET, NUM_TOKENS, **logprobs), path=path)
    assert answer.finish_reason == "length"
    ends = [len(text) for text in texts_after_each_token(answer)]
    assert ends[-1] == len(answer.text)
    return Reference(answer.text, ends, a_place_for_a_stop(answer.text, ends))


def a_place_for_a_stop(text: str, ends: list[int]) -> int:
    """A k at which text[k:k+5] spans two tokens, and nine, five and the inner four characters first occur there."""
    for k in range(8, len(text) - 9):
        spans_tokens = k not in ends and any(k < end < k + 5 for end in ends)
        pieces = ((k, k + 9), (k, k + 5), (k + 2, k + 6))
        are_first = all(text.find(text[start:end]) == start for start, end in pieces)
        if spans_tokens and are_first and text.count(text[k : k + 9]) == 1:
            return k
    raise AssertionError(f"no place for a stop string in {text!r}")


def variants(reference: Reference) -> list[Variant]:
    text, k = reference.text, reference.k
    inner = text[k + 2 : k + 6]
    early = reference.num_tokens_into_it
    return [
        Variant({"stop": [reference.stop]}, text[:k], "stop", reference.num_tokens_to(k + 9)),
        Variant({"stop": [reference.never_completed]}, text, "length", NUM_TOKENS),
        Variant(
            {"stop": [reference.never_completed], "max_tokens": early},
            text[: reference.ends[early - 1]],
            "length",
            early,
        ),
        Variant({"stop": [reference.stop, inner]}, text[: k + 2], "stop", reference.num_tokens_to(k + 6)),
        Variant({"stop": [inner, reference.stop]}, text[: k + 2], "stop", reference.num_tokens_to(k + 6)),
        Variant({"stop": reference.stop, "min_tokens": NUM_TOKENS}, text, "length", NUM_TOKENS),
    ]


async def check_variant(client: Client, path: str, reference: Reference, variant: Variant) -> None:
    body = question(path, ALPHABET, NUM_TOKENS, **variant.fields)
    plain, streamed, bare = await asyncio.gather(
        client.ask(body, path=path),
        client.ask({**body, **WITH_USAGE}, path=path),
        client.ask({**body, **WITH_USAGE, "return_token_ids": False}, path=path),  # held tokens make no chunks
    )
    for answer in (plain, streamed, bare):
        assert answer.text == variant.text
        assert answer.finish_reason == variant.finish_reason
        assert answer.usage is not None
        assert answer.usage["completion_tokens"] == variant.num_tokens
    assert len(plain.token_ids) == len(streamed.token_ids) == variant.num_tokens
    for stream in (streamed, bare):
        assert stream.is_done
        for num_deltas in range(len(stream.deltas)):
            so_far = "".join(stream.deltas[:num_deltas])
            assert variant.text.startswith(so_far), "a delta goes beyond what the answer is"


# ── s10: characters made of several tokens stream as whole characters ────────────────────────────────────────────────


def test_characters_of_several_tokens_stream_as_whole_characters(served: Served) -> None:
    async def case() -> None:
        async with served.connect() as client:
            await asyncio.gather(check_completion_characters(client), check_chat_characters(client))

    asyncio.run(case())


async def check_completion_characters(client: Client) -> None:
    plain = await client.ask(question("/v1/completions", MANY_BYTES, NUM_TOKENS, logprobs=1))
    tokens = plain.answer["choices"][0]["logprobs"]["tokens"]
    assert any(token.startswith("bytes:") for token in tokens), "no token is a part of a character: void"
    await asyncio.gather(
        check_streamed(client, "/v1/completions", plain.text, NUM_TOKENS, logprobs=1),
        *[check_cut_short(client, plain, num_tokens) for num_tokens in BUDGETS],
    )


async def check_chat_characters(client: Client) -> None:
    plain = await client.ask(question(CHAT, MANY_BYTES, NUM_TOKENS, logprobs=True), path=CHAT)
    entries = plain.answer["choices"][0]["logprobs"]["content"]
    assert len(entries) == NUM_TOKENS
    assert plain.text == b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")
    await check_streamed(client, CHAT, plain.text, NUM_TOKENS, logprobs=True)


async def check_cut_short(client: Client, whole: Stream, num_tokens: int) -> None:
    """A budget that may end inside a character: plain and streamed say the same, and say it whole."""
    plain = await client.ask(question("/v1/completions", MANY_BYTES, num_tokens, logprobs=1))
    assert plain.token_ids == whole.token_ids[:num_tokens]
    assert plain.text.rstrip(UNFINISHED) == whole.text[: len(plain.text.rstrip(UNFINISHED))]
    await check_streamed(client, "/v1/completions", plain.text, num_tokens, logprobs=1)


async def check_streamed(client: Client, path: str, plain_text: str, num_tokens: int, **fields: Any) -> None:
    body = question(path, MANY_BYTES, num_tokens, **WITH_USAGE)
    streamed, bare = await asyncio.gather(
        client.ask({**body, **fields}, path=path),
        client.ask({**body, "return_token_ids": False}, path=path),  # a token without text makes no chunk
    )
    assert len(streamed.token_ids) == num_tokens
    assert sum(map(num_logprobs, streamed.events)) == num_tokens
    for stream in (streamed, bare):
        assert stream.text == plain_text
        assert stream.usage is not None
        assert stream.usage["completion_tokens"] == num_tokens
        assert UNFINISHED not in stream.text[:-1], "only the last character may be one that the budget cut"
        for line in stream.lines:
            line.decode("utf-8")


def num_logprobs(event: dict[str, Any]) -> int:
    """Log-probability entries in one chunk, of either API."""
    counts = [choice["logprobs"] for choice in event["choices"]]
    return sum(len(logprobs.get("content") or logprobs.get("tokens") or ()) for logprobs in counts)


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def question(path: str, text: str, num_tokens: int, **fields: Any) -> dict[str, Any]:
    """The body of either API for `text`, answered in exactly so many tokens unless `fields` says otherwise."""
    asked = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    return completion(output=num_tokens, **asked) | fields


def texts_after_each_token(answer: Stream) -> list[str]:
    """The answer's text after its first token, its second …"""
    logprobs = answer.answer["choices"][0]["logprobs"]
    tokens = logprobs.get("tokens") or [entry["token"] for entry in logprobs["content"]]
    return ["".join(tokens[: count + 1]) for count in range(len(tokens))]
