"""What vLLM's clients say about a chat's prompt and an answer's text, and what comes of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from daemon.answer import Answer, Delta
from daemon.chat_rendering import Rendering
from daemon.errors import ApiError
from daemon.openai_api import read_chat, read_completion
from engine.core.contents import TokenOutput
from tests.daemon.served import Served, completion
from tests.daemon.test_server import Tell, shared_server
from tests.daemon.text_models import END_OF_TEXT, byte_text_model

HELLO: Any = [{"role": "user", "content": "hello"}]
BEGUN: Any = [*HELLO, {"role": "assistant", "content": "Sure, "}]


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server()


def rendering(messages: Any = HELLO, **fields: Any) -> Rendering:
    return read_chat({"messages": messages, **fields}, 1000).rendering


def test_the_template_is_told_what_the_client_tells_it() -> None:
    assert rendering() == Rendering() == rendering(chat_template_kwargs=None, continue_final_message=None)
    assert rendering(chat_template_kwargs={"enable_thinking": False}).variables == {"enable_thinking": False}
    assert rendering(reasoning_effort="low").variables == {"reasoning_effort": "low"}
    assert not rendering(add_generation_prompt=False).adds_prompt
    for fields in ({}, {"add_generation_prompt": False}):
        going_on = rendering(BEGUN, continue_final_message=True, **fields)
        assert (going_on.goes_on, going_on.adds_prompt) == (True, False)


@pytest.mark.parametrize(
    ("messages", "fields", "param", "says"),
    [
        (BEGUN, {"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", "give one"),
        (HELLO, {"continue_final_message": True}, "continue_final_message", "role assistant"),
        (HELLO, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "a field of its own"),
        (HELLO, {"chat_template_kwargs": {"strftime_now": 1}}, "chat_template_kwargs", "leave it out"),
        (HELLO, {"chat_template_kwargs": {"not a name": 1}}, "chat_template_kwargs", "no template's variable"),
        (HELLO, {"chat_template_kwargs": []}, "chat_template_kwargs", "must be an object"),
        (HELLO, {"chat_template": "{{ messages }}"}, "chat_template", "not supported"),
        (HELLO, {"echo": True}, "echo", "not supported"),
        (HELLO, {"skip_special_tokens": False, "stop": "x"}, "stop", "skip_special_tokens"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(messages: Any, fields: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ApiError) as raised:
        rendering(messages, **fields)
    assert raised.value.param == param
    assert says in raised.value.message


def test_null_counts_as_not_given_in_every_field() -> None:
    names = ("add_special_tokens", "truncate_prompt_tokens", "skip_special_tokens", "include_stop_str_in_output")
    assert read_completion({"prompt": "x", **dict.fromkeys(names)}, 1000) == read_completion({"prompt": "x"}, 1000)


def text_of(text: str, *, end: int | None = None, **settings: Any) -> str:
    answer = Answer(byte_text_model(), **settings)
    ids = [*text.encode(), *([] if end is None else [end])]
    deltas = [answer.push(TokenOutput(1, token_id, -0.5)) for token_id in ids]
    return Delta.joined([*[delta for delta in deltas if delta], answer.finish()]).text


def test_what_ended_an_answer_is_a_part_of_it_where_that_is_asked_for() -> None:
    assert text_of("one. two", stop_strings=(".",)) == "one"
    assert text_of("one. two", stop_strings=(".",), includes_stop=True) == "one."
    assert text_of("one", end=ord("!"), hidden_ids=(ord("!"),)) == "one"
    assert text_of("one", end=ord("!")) == "one!"
    assert text_of("one", end=END_OF_TEXT) == "one"
    assert text_of("one", end=END_OF_TEXT, shows_special=True) == "one<end>"


def test_a_chat_goes_on_where_its_last_message_was_left_and_prompts_are_cut_and_counted(tell: Tell) -> None:
    async def story(served: Served) -> None:
        path = "/v1/chat/completions"
        told = {"messages": BEGUN, "max_tokens": 4, "seed": 7, "ignore_eos": True}
        _, closed = await served.post(path, {**told, "add_generation_prompt": False})
        status, begun = await served.post(path, {**told, "continue_final_message": True})
        assert (status, begun["choices"][0]["finish_reason"]) == (200, "length")
        assert begun["usage"]["prompt_tokens"] == closed["usage"]["prompt_tokens"]  # this template closes nothing
        _, counted = await served.post("/tokenize", {"messages": BEGUN, "continue_final_message": True})
        assert counted["count"] == begun["usage"]["prompt_tokens"]
        _, cut = await served.complete(prompt="a long prompt", truncate_prompt_tokens=6)
        _, same = await served.complete(prompt="prompt")
        assert cut["usage"] == same["usage"]
        assert cut["choices"] == same["choices"]
        told = {"truncate_prompt_tokens": 6, "echo": True, "logprobs": 1}
        _, echoed = await served.complete(prompt="a long prompt", **told)
        (choice,) = echoed["choices"]
        assert choice["text"].startswith("prompt")
        assert choice["logprobs"]["text_offset"][:7] == [*range(6), 6]
        status, refused = await served.complete(prompt="x", suffix="y", truncate_prompt_tokens=6)
        assert (status, refused["error"]["param"]) == (400, "truncate_prompt_tokens")
        _, fitting = await served.complete(prompt="x" * 4000, truncate_prompt_tokens=-1, max_tokens=8)
        assert fitting["usage"]["prompt_tokens"] == 512 - 8

    tell(story)


def test_each_chunk_tells_the_usage_so_far_where_that_is_asked_for(tell: Tell) -> None:
    async def story(served: Served) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        body = completion(prompt=[1, 2, 3], n=2, stream_options=options)
        chunks = [json.loads(line) for line in (await served.events("/v1/completions", body))[:-1]]
        *told, last = chunks
        counts: dict[int, list[int]] = {0: [], 1: []}
        for chunk in told:
            usage = chunk["usage"]
            assert usage["prompt_tokens"] == 3
            assert usage["total_tokens"] == 3 + usage["completion_tokens"]
            counts[chunk["choices"][0]["index"]].append(usage["completion_tokens"])
        assert all(each == sorted(each) and each[-1] == 8 for each in counts.values())
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 16)
        options["include_usage"] = False
        lines = await served.events("/v1/completions", completion(stream_options=options))
        assert all("usage" not in json.loads(line) for line in lines[:-1])

    tell(story)
