"""The API as the official Python client sees it: its types parse every answer, its exceptions name what is wrong."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from engine.core.decisions import FinishReason
from tests.integration.aftermath import check_recording, wait_idle
from tests.integration.daemon_process import MODEL, DaemonProcess
from tests.integration.trace import until_ended

API_KEY = "a-key-for-tests"
MESSAGES: Any = [{"role": "user", "content": "Name three rivers."}]
PROMPT = "The three longest rivers are"
NUM_TOKENS = 12


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("openai"), api_key=API_KEY) as daemon:
        yield daemon
        assert wait_idle(daemon)["vllm:kv_cache_usage_perc"] == 0
    check_recording(daemon.recording, execute=True)


@pytest.fixture(scope="module")
def client(daemon: DaemonProcess) -> Iterator[OpenAI]:
    with client_with(daemon, API_KEY) as client:
        yield client


def client_with(daemon: DaemonProcess, api_key: str) -> OpenAI:
    """Without its retries: a wrong answer must not be hidden by a second try."""
    return OpenAI(base_url=f"{daemon.base_url}/v1", api_key=api_key, max_retries=0, timeout=120)


# ── likelihoods ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_has_the_likelihood_with_which_it_was_drawn(client: OpenAI) -> None:
    """As evaluation tools ask: the answer behind its prompt, echoed with log-probabilities, bit for bit the same."""
    drawn = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=NUM_TOKENS, temperature=0, logprobs=1)
    (answer,) = drawn.choices
    assert answer.logprobs is not None
    told = client.completions.create(
        model=MODEL, prompt=PROMPT + answer.text, max_tokens=1, temperature=0, logprobs=1, echo=True
    )
    (echoed,) = told.choices
    assert echoed.text.startswith(PROMPT + answer.text)
    assert echoed.logprobs is not None
    assert drawn.usage is not None
    continuation = (echoed.logprobs.token_logprobs or [])[drawn.usage.prompt_tokens : -1]
    assert continuation == answer.logprobs.token_logprobs
    tops = (echoed.logprobs.top_logprobs or [])[drawn.usage.prompt_tokens : -1]
    assert all(logprob == max(top.values()) for logprob, top in zip(continuation, tops, strict=True)), "it is greedy"
    assert echoed.logprobs.text_offset is not None
    assert echoed.logprobs.text_offset[drawn.usage.prompt_tokens] == len(PROMPT)
    likely, unlikely = [
        sum((choice.logprobs.token_logprobs or [])[1:]) if choice.logprobs else 0.0
        for choice in client.completions.create(
            model=MODEL,
            prompt=["The capital of France is Paris", "The capital of France is carrot"],
            max_tokens=0,
            logprobs=0,
            echo=True,
        ).choices
    ]
    assert likely > unlikely


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chat_streams_the_answer_that_it_gives_whole(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=NUM_TOKENS, temperature=0, n=1)
    assert whole.object == "chat.completion"
    assert whole.model == MODEL
    assert whole.id.startswith("chatcmpl-")
    (choice,) = whole.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_completion_tokens=NUM_TOKENS, temperature=0, stream=True
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == choice.finish_reason
    assert {chunk.choices[0].finish_reason for chunk in chunks[:-1]} == {None}
    assert {(chunk.id, chunk.model, chunk.object, chunk.created) for chunk in chunks} == {
        (chunks[0].id, MODEL, "chat.completion.chunk", chunks[0].created)
    }
    assert chunks[0].system_fingerprint == whole.system_fingerprint is not None


def test_a_completion_streams_the_answer_that_it_gives_whole(client: OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=NUM_TOKENS, temperature=0, n=1)
    assert whole.object == "text_completion"
    assert whole.id.startswith("cmpl-")
    assert whole.usage is not None
    assert whole.usage.completion_tokens == NUM_TOKENS
    chunks = list(
        client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=NUM_TOKENS, temperature=0, stream=True)
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert {(chunk.object, chunk.id) for chunk in chunks} == {("text_completion", chunks[0].id)}


def test_the_default_number_of_completion_tokens_is_the_apis_sixteen(client: OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_the_usage_chunk_comes_only_when_it_is_asked_for(client: OpenAI) -> None:
    common: dict[str, Any] = {"model": MODEL, "max_tokens": 3, "temperature": 0, "stream": True}
    asked: dict[str, Any] = {"stream_options": {"include_usage": True}}
    for chunks in (
        list(client.chat.completions.create(messages=MESSAGES, **common)),
        list(client.completions.create(prompt=PROMPT, **common)),
    ):
        assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks)
    for chunks in (
        list(client.chat.completions.create(messages=MESSAGES, **common, **asked)),
        list(client.completions.create(prompt=PROMPT, **common, **asked)),
    ):
        assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks[:-1])
        assert chunks[-1].choices == []
        assert chunks[-1].usage.completion_tokens == 3
        assert chunks[-1].usage.prompt_tokens_details.cached_tokens is not None


def test_stop_strings_end_the_answer_before_them(client: OpenAI) -> None:
    prompt = "Here is the alphabet: A B C D E F G H"
    for stop in (" L M", [" never", " L M"]):
        whole = client.completions.create(model=MODEL, prompt=prompt, max_tokens=20, temperature=0, stop=stop)
        assert whole.choices[0].text == " I J K"
        assert whole.choices[0].finish_reason == "stop"
        chunks = client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=20, temperature=0, stop=stop, stream=True
        )
        assert "".join(chunk.choices[0].text for chunk in chunks) == " I J K"


# ── log-probabilities, seeds, extras ─────────────────────────────────────────────────────────────────────────────────


def test_a_chats_logprobs_name_the_likeliest_tokens(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3
    )
    assert answer.usage is not None
    assert answer.choices[0].logprobs is not None
    entries = answer.choices[0].logprobs.content
    assert entries is not None
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0, "greedy draws the likeliest"
        assert entry.token == entry.top_logprobs[0].token
        assert [top.logprob for top in entry.top_logprobs] == sorted([t.logprob for t in entry.top_logprobs])[::-1]
        assert bytes(entry.bytes or []).decode() == entry.token
    assert "".join(entry.token for entry in entries) == answer.choices[0].message.content
    bare = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2, temperature=0, logprobs=True)
    assert bare.choices[0].logprobs is not None
    assert [entry.top_logprobs for entry in bare.choices[0].logprobs.content or []] == [[], []]


def test_a_completions_logprobs_are_four_lists_of_one_length(client: OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=5, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.text_offset is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert len(logprobs.tokens) == len(logprobs.text_offset) == 5
    assert "".join(logprobs.tokens) == answer.choices[0].text
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert len(top) == 2
        assert max(top.values()) == logprob == top[token]
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert answer.choices[0].text[offset:].startswith(token)


def test_a_seed_gives_the_same_draws_again(client: OpenAI) -> None:
    def texts(seed: int | None) -> set[str]:
        return {
            client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=10, temperature=1.2, seed=seed)
            .choices[0]
            .text
            for _ in range(2)
        }

    assert len(texts(7)) == 1
    assert len(texts(7) | texts(8)) == 2
    assert len(texts(None)) == 2, "without a seed each request draws its own"


def test_extra_fields_reach_the_sampler(client: OpenAI) -> None:
    def ask(**extra: Any) -> Any:
        return client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=8, extra_body={"return_token_ids": True, **extra}, **sampled
        ).choices[0]

    sampled: dict[str, Any] = {"temperature": 0}
    greedy = ask()
    assert len(greedy.token_ids) == 8
    sampled = {"temperature": 2.0, "seed": 3}
    free = ask()
    assert free.text != greedy.text, "the temperature was to draw something else"
    assert ask(top_k=1).token_ids == greedy.token_ids
    assert ask(min_p=1.0).token_ids == greedy.token_ids
    sampled = {"temperature": 0, "logit_bias": {"2": 100}}  # the model's end-of-text token
    assert ask().token_ids == [2]
    assert ask(ignore_eos=True).token_ids == [2] * 8
    assert ask(min_tokens=3, stop_token_ids=[2]).token_ids == [*greedy.token_ids[:3], 2]


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_errors_arrive_as_the_clients_own_exceptions(client: OpenAI, daemon: DaemonProcess) -> None:
    with pytest.raises(openai.NotFoundError) as not_found:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert "no-such-model" in str(not_found.value)
    assert MODEL in str(not_found.value)
    assert not_found.value.code == "model_not_found"
    assert not_found.value.request_id
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=MODEL, prompt=PROMPT, temperature=3)
    assert bad.value.param == "temperature"
    assert "temperature" in bad.value.message
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=1_000_000)
    assert too_long.value.code == "context_length_exceeded"
    assert "max_tokens" in too_long.value.message
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    absent: Any = {"type": "function", "function": {"name": "g"}}
    with pytest.raises(openai.BadRequestError, match=r"\btools\b"):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=tools, tool_choice=absent)
    with pytest.raises(openai.BadRequestError, match=r"\bmessages\b"):
        client.chat.completions.create(model=MODEL, messages=[], stream=True)
    with client_with(daemon, "another-key") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model=MODEL, messages=MESSAGES)
    with client_with(daemon, "another-key") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_the_models_are_listed_and_found(client: OpenAI) -> None:
    (card,) = client.models.list().data
    assert card.id == MODEL
    assert client.models.retrieve(MODEL) == card
    assert card.model_extra is not None
    assert card.model_extra["max_model_len"] > 0
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


# ── a client that leaves ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_client_that_leaves_ends_its_request(client: OpenAI, daemon: DaemonProcess, api: str) -> None:
    request_id = f"leaves-{api}"
    common: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 1_000,
        "stream": True,
        "extra_body": {"ignore_eos": True},
        "extra_headers": {"X-Request-Id": request_id},
    }
    if api == "chat":
        stream: Any = client.chat.completions.create(messages=MESSAGES, **common)
    else:
        stream = client.completions.create(prompt=PROMPT, **common)
    assert stream.response.headers["x-request-id"] == request_id
    with contextlib.closing(stream):
        for _ in range(4):
            next(iter(stream))
    wait_idle(daemon)
    finish = asyncio.run(until_ended(daemon, request_id))[request_id].finish
    assert finish.reason == FinishReason.CANCELLED
    assert 1 <= finish.num_output_tokens < 500, "it went on for nobody"
