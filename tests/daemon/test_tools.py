"""Functions that an answer may call, must call or may not: what is read of a body, and what a call looks like."""

import json
from typing import Any

import openai
import pytest

from daemon.answer import Answer, Delta
from daemon.chat_messages import read_messages
from daemon.choices import Choices
from daemon.errors import ApiError
from daemon.mailbox import Item
from daemon.openai_api import read_chat
from daemon.question import Question
from daemon.response_bodies import ResponseBodies, usage
from engine.core.contents import TokenOutput
from engine.core.decisions import FinishReason, RequestFinished
from engine.text.tool_format import HERMES
from tests.daemon.served import MODEL, Served
from tests.daemon.test_server import tell_alone
from tests.daemon.text_models import byte_text_model

HELLO: Any = [{"role": "user", "content": "hello"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TIME: Any = {"type": "function", "function": {"name": "time"}}
NAMED: Any = {"type": "function", "function": {"name": "weather"}}
CALL: Any = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
ANSWER = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'


def chat(**fields: Any) -> Question:
    return read_chat({"messages": HELLO, **fields}, 1000)


@pytest.mark.parametrize(
    ("fields", "callable_names", "is_required", "is_parallel"),
    [
        ({}, ["weather", "time"], False, True),
        ({"tool_choice": "auto", "parallel_tool_calls": False}, ["weather", "time"], False, False),
        ({"tool_choice": "required"}, ["weather", "time"], True, True),
        ({"tool_choice": NAMED}, ["weather"], True, False),
    ],
)
def test_the_model_chooses_unless_it_is_told_what_to_call(
    fields: dict[str, Any], callable_names: list[str], is_required: bool, is_parallel: bool
) -> None:
    question = chat(tools=[WEATHER, TIME], **fields)
    assert question.tools is not None
    assert [name for name, _schema in question.tools.callable] == callable_names
    assert (question.tools.is_required, question.tools.is_parallel) == (is_required, is_parallel)
    assert [tool["function"]["name"] for tool in question.tools.told] == ["weather", "time"]
    assert question.unknown_fields == ()


def test_without_tools_or_with_none_of_them_an_answer_is_free() -> None:
    for question in (chat(tools=[WEATHER], tool_choice="none"), chat(tool_choice="auto"), chat(tools=[])):
        assert (question.tools, question.structure, question.unknown_fields) == (None, None, ())


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"tool_choice": "required"}, "tool_choice", "no tools are given"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice", "must be none, auto, required or"),
        ({"tools": [TIME], "tool_choice": NAMED}, "tool_choice", "'weather', which tools lacks"),
        ({"tools": [WEATHER, WEATHER]}, "tools", "tools[1].function.name"),
        ({"tools": [{"type": "retrieval"}]}, "tools", "tools[0] must be"),
        ({"tools": [WEATHER], "response_format": {"type": "json_object"}}, "response_format", "cannot be had with"),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ApiError) as raised:
        chat(**fields)
    assert raised.value.param == param
    assert says in raised.value.message


def test_a_result_is_told_with_the_name_of_the_function_that_was_called() -> None:
    messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    messages.append({"role": "tool", "tool_call_id": "call_1", "content": "rain"})
    _, call, result = read_messages({"messages": messages})
    assert call["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Ulm"}}
    assert result == {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "rain"}


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"role": "tool", "content": "rain"}, "messages[0] needs the tool_call_id"),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "messages[0].tool_calls[0] must be"),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": "{"}}]},
            "arguments is not valid JSON",
        ),
    ],
)
def test_a_call_that_cannot_be_told_again_is_refused_by_its_place(message: dict[str, Any], says: str) -> None:
    with pytest.raises(ApiError) as raised:
        read_messages({"messages": [message]})
    assert says in raised.value.message


def told_of(text: str) -> list[tuple[Delta, str | None]]:
    """The deltas of an answer that reads `text`, one token per byte."""
    choices = Choices([Answer(byte_text_model(), tool_format=HERMES.name)], lambda: ApiError(503, "lost"))
    outputs = [TokenOutput(1, byte, -0.5) for byte in text.encode()]
    items: list[Item] = [*outputs, RequestFinished(1, FinishReason.STOP, 3, len(outputs), 0, 0, 0)]
    return [step for item in items if (step := choices.take(0, item)) is not None]


def test_an_answer_with_a_call_tells_its_text_and_then_the_call_whole_and_in_pieces() -> None:
    steps = told_of(ANSWER)
    bodies = ResponseBodies("chatcmpl-1", 7, "m", "fp", is_chat=True)
    joined = Delta.joined([delta for delta, _reason in steps])
    assert len(joined.token_ids) == len(ANSWER)
    assert steps[-1][1] == "tool_calls"
    choice = bodies.whole([(joined, "tool_calls")], usage([]))["choices"][0]
    assert choice["message"]["content"] == "Let me see.\n"
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Ulm"}
    deltas = [bodies.chunk(0, *step)["choices"][0]["delta"] for step in steps]
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", ())]
    assert pieces[0] == {"index": 0, **call, "function": {"name": "weather", "arguments": ""}}
    assert {tuple(piece["function"]) for piece in pieces[1:]} == {("arguments",)}
    assert "".join([piece["function"]["arguments"] for piece in pieces]) == call["function"]["arguments"]
    assert "".join([delta.get("content", "") for delta in deltas]) == "Let me see.\n"


def test_an_answer_without_a_call_ends_with_stop_and_keeps_its_text() -> None:
    for text in ("no call", "almost <tool_call>", "a < b"):
        steps = told_of(text)
        assert steps[-1][1] == "stop"
        assert Delta.joined([delta for delta, _reason in steps]).text == text


def test_the_prompt_tells_of_the_tools_and_a_schema_that_cannot_be_followed_is_refused_by_its_function() -> None:
    async def story(served: Served) -> None:
        url = f"{served.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
            asked: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 2}
            told = await client.chat.completions.create(**asked, tools=[WEATHER, TIME])
            untold = await client.chat.completions.create(**asked, tools=[WEATHER, TIME], tool_choice="none")
            assert told.usage is not None
            assert untold.usage is not None
            assert told.usage.prompt_tokens > untold.usage.prompt_tokens + 100
            wrong: Any = {"type": "function", "function": {"name": "x", "parameters": {"not": {}}}}
            with pytest.raises(openai.BadRequestError, match="parameters of 'x'"):
                await client.chat.completions.create(**asked, tools=[wrong])

    tell_alone(story, max_model_len=2048)
