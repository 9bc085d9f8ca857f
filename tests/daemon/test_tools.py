"""A function that must be called: its arguments' schema is the grammar, and the answer has the shape of a call."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from daemon.answer import Delta
from daemon.errors import ApiError
from daemon.openai_api import read_chat
from daemon.question import Question
from daemon.response_bodies import ResponseBodies, usage
from tests.daemon.served import MODEL, Served
from tests.daemon.test_server import Tell, shared_server

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


def chat(**fields: Any) -> Question:
    return read_chat({"messages": HELLO, **fields}, 1000)


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server()


def test_a_named_function_is_called_and_no_tool_leaves_a_text() -> None:
    for question in (
        chat(tools=[WEATHER, TIME], tool_choice=NAMED),
        chat(tools=[WEATHER], tool_choice="required"),
    ):
        assert question.tool_name == "weather"
        assert question.structure is not None
    assert chat(tools=[TIME], tool_choice="required").structure is not None
    for question in (chat(tools=[WEATHER], tool_choice="none"), chat(tool_choice="auto"), chat(tools=[])):
        assert (question.tool_name, question.structure, question.unknown_fields) == ("", None, ())


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"tools": [WEATHER]}, "tool_choice", "may choose are not supported"),
        ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice", "may choose are not supported"),
        ({"tools": [WEATHER, TIME], "tool_choice": "required"}, "tool_choice", "single tool"),
        ({"tools": [TIME], "tool_choice": NAMED}, "tool_choice", "'weather', which tools lacks"),
        ({"tools": [WEATHER, WEATHER], "tool_choice": NAMED}, "tools", "tools[1].function.name"),
        (
            {"tools": [WEATHER], "tool_choice": NAMED, "response_format": {"type": "json_object"}},
            "tool_choice",
            "response_format cannot be had",
        ),
    ],
)
def test_what_is_left_to_the_model_or_contradicts_itself_is_refused(
    fields: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(ApiError) as raised:
        chat(**fields)
    assert raised.value.param == param
    assert says in raised.value.message


def test_the_official_client_reads_a_call_whole_and_streamed(tell: Tell) -> None:
    """The runner without weights follows no grammar: here the shapes are looked at, not the arguments."""

    async def story(served: Served) -> None:
        asked: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 6, "seed": 1}
        asked |= {"tools": [WEATHER], "tool_choice": NAMED, "extra_body": {"ignore_eos": True}}
        async with openai.AsyncOpenAI(base_url=f"{served.base_url}/v1", api_key="x", max_retries=0) as client:
            whole = await client.chat.completions.create(**asked)
            calls = whole.choices[0].message.tool_calls
            assert calls is not None
            (call,) = calls
            assert call.type == "function"
            assert (call.function.name, whole.choices[0].message.content) == ("weather", None)
            assert whole.choices[0].finish_reason == "length"
            names, arguments = [], ""
            async for chunk in await client.chat.completions.create(**asked, stream=True):
                for part in chunk.choices[0].delta.tool_calls or ():
                    assert part.index == 0
                    assert part.function is not None
                    names += [part.function.name] if part.function.name else []
                    arguments += part.function.arguments or ""
            assert (names, arguments) == (["weather"], call.function.arguments)

    tell(story)


def test_a_call_that_is_whole_ends_with_tool_calls() -> None:
    bodies = ResponseBodies("chatcmpl-1", 7, "m", "fp", is_chat=True, tool_name="weather")
    whole = bodies.whole([(Delta('{"city": "Ulm"}'), "stop")], usage([]))["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Ulm"}
    assert bodies.chunk(0, Delta(), "stop")["choices"][0]["finish_reason"] == "tool_calls"
