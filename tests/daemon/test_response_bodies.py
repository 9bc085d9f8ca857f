"""Shapes that strict clients rely on, read with the types of the openai package."""

from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from daemon.answer import Delta, TokenLogprob
from daemon.response_bodies import ResponseBodies, usage
from engine.core.decisions import FinishReason, RequestFinished

ENTRY = TokenLogprob("a", b"a", -0.5, 0, (("a", b"a", -0.5), ("b", b"b", -1.5)))
DELTA = Delta("a", (97,), (ENTRY,))
FINISHED = RequestFinished(0, FinishReason.STOP, 10, 3, 8, 0, 2)


def bodies(**fields: Any) -> ResponseBodies:
    known: dict[str, Any] = {"id": "cmpl-1", "created": 7, "model": "m", "system_fingerprint": "fp", "is_chat": False}
    return ResponseBodies(**(known | fields))


def test_a_whole_completion_has_the_apis_shape() -> None:
    body = bodies(wants_logprobs=True).whole([(DELTA, "stop")], usage([FINISHED]))
    read = Completion.model_validate(body, strict=True)
    assert (read.id, read.object, read.created, read.model) == ("cmpl-1", "text_completion", 7, "m")
    assert (read.choices[0].text, read.choices[0].finish_reason) == ("a", "stop")
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["a"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"a": -0.5, "b": -1.5}],
        "text_offset": [0],
    }
    assert body["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 8},
    }


def test_a_whole_chat_completion_has_the_apis_shape() -> None:
    body = bodies(is_chat=True, wants_logprobs=True).whole([(DELTA, "length")], usage([FINISHED]))
    read = ChatCompletion.model_validate(body, strict=True)
    assert read.choices[0].message.role == "assistant"
    assert read.choices[0].message.content == "a"
    assert read.choices[0].logprobs is not None
    assert read.choices[0].logprobs.content is not None
    assert read.choices[0].logprobs.content[0].top_logprobs[1].token == "b"


def test_a_chat_stream_begins_with_the_role_and_ends_with_the_reason() -> None:
    chat = bodies(is_chat=True)
    (opening,) = chat.opening_chunks(1)
    chunks = [opening, chat.chunk(0, Delta("hi", (1,))), chat.chunk(0, Delta(), "stop")]
    for chunk in chunks:
        read = ChatCompletionChunk.model_validate(chunk, strict=True)
        assert (read.id, read.object, read.created) == ("cmpl-1", "chat.completion.chunk", 7)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "hi"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]


def test_a_completion_stream_has_no_opening_and_its_object_is_the_same_as_whole() -> None:
    assert bodies().opening_chunks(3) == []
    chunk = bodies().chunk(0, Delta("hi", (1,)))
    assert chunk["object"] == "text_completion"
    assert chunk["choices"] == [{"index": 0, "text": "hi", "logprobs": None, "finish_reason": None}]


def test_usage_stands_in_chunks_only_when_it_was_asked_for() -> None:
    assert "usage" not in bodies().chunk(0, DELTA)
    asked = bodies(include_usage=True)
    assert asked.chunk(0, DELTA)["usage"] is None
    last = asked.usage_chunk(usage([FINISHED]))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3


def test_token_ids_are_an_extra_that_must_be_asked_for() -> None:
    assert "token_ids" not in bodies().chunk(0, DELTA)["choices"][0]
    assert bodies(return_token_ids=True).chunk(0, DELTA)["choices"][0]["token_ids"] == [97]
    whole = bodies(is_chat=True, return_token_ids=True).whole([(DELTA, "stop")], usage([FINISHED]))
    assert whole["choices"][0]["token_ids"] == [97]


def test_usage_of_several_choices_is_their_sum() -> None:
    both = usage([FINISHED, FINISHED])
    assert (both["prompt_tokens"], both["completion_tokens"], both["total_tokens"]) == (20, 6, 26)
