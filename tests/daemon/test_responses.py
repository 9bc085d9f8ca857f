"""/v1/responses by the official client's own types: whole, in events, with calls; what needs a memory is refused."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from daemon.answer import Delta
from daemon.call_reader import CallDelta
from daemon.errors import ApiError
from daemon.openai_api import read_response
from daemon.response_bodies import usage
from daemon.responses_bodies import ResponsesBodies
from daemon.responses_request import chat_of
from tests.daemon.served import MODEL, Served
from tests.daemon.test_server import Tell, shared_server

FUNCTION: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server(max_num_seqs=8)


def client_of(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.base_url}/v1", api_key="x", max_retries=0)


def test_a_response_streams_the_answer_that_it_gives_whole_in_the_order_that_clients_expect(tell: Tell) -> None:
    asked: dict[str, Any] = {"model": MODEL, "input": "hello", "instructions": "Be brief.", "max_output_tokens": 8}
    asked["extra_body"] = {"seed": 3, "ignore_eos": True}

    async def story(served: Served) -> None:
        async with client_of(served) as client:
            whole = await client.responses.create(**asked, metadata={"a": "b"})
            Response.model_validate(whole.model_dump())
            assert (whole.object, whole.status, whole.store) == ("response", "incomplete", False)
            assert whole.incomplete_details is not None
            assert whole.incomplete_details.reason == "max_output_tokens"
            assert (whole.instructions, whole.metadata, whole.max_output_tokens) == ("Be brief.", {"a": "b"}, 8)
            assert whole.usage is not None
            assert whole.usage.output_tokens == 8
            assert whole.usage.total_tokens == whole.usage.input_tokens + 8
            assert whole.output_text
            events: list[Any] = [event async for event in await client.responses.create(**asked, stream=True)]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        kinds = [event.type.removeprefix("response.") for event in events]
        assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
        assert set(kinds[4:-4]) == {"output_text.delta"}
        assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
        assert "".join(event.delta for event in events[4:-4]) == events[-4].text == whole.output_text
        last = events[-1].response
        assert last.output_text == whole.output_text
        assert last.usage.total_tokens == whole.usage.total_tokens

    tell(story)


def test_the_clients_own_accumulator_builds_the_response(tell: Tell) -> None:
    async def story(served: Served) -> None:
        async with client_of(served) as client:
            asked: Any = {"model": MODEL, "input": [{"role": "user", "content": "hi"}], "max_output_tokens": 200}
            asked["extra_body"] = {"stop_token_ids": list(range(1000))}
            async with client.responses.stream(**asked) as stream:
                kinds = [event.type async for event in stream]
                final = await stream.get_final_response()
            assert kinds[-1] == "response.completed"
            assert final.output[0].type == "message"

    tell(story)


def test_a_stream_that_cannot_go_on_says_so_to_clients_of_either_kind() -> None:
    bodies = ResponsesBodies("r", 1, MODEL, "fp", chat_of({"input": "x"})[1])
    error = {"message": "it failed", "type": "server_error", "param": None, "code": 500}
    event = bodies.failure({"error": error})
    assert (event["type"], event["code"], event["message"], event["error"]) == ("error", "500", "it failed", error)


def test_a_call_is_an_item_of_its_own_behind_what_was_said() -> None:
    bodies = ResponsesBodies("r", 1, MODEL, "fp", chat_of({"input": "x", "tools": [FUNCTION]})[1])
    deltas = [Delta("Hm."), Delta("", (), (), (CallDelta(0, "weather", ""), CallDelta(0, "", '{"a"')))]
    deltas += [Delta("", (), (), (CallDelta(0, "", ": 1}"), CallDelta(1, "weather", ""), CallDelta(1, "", "{}")))]
    events = bodies.opening_chunks(1)
    for delta in deltas:
        events += bodies.chunks(0, delta)
    events += bodies.chunks(0, Delta(), "tool_calls")
    events += bodies.ending(usage([]))
    kinds = [event["type"].removeprefix("response.") for event in events]
    message = ["output_item.added", "content_part.added", "output_text.delta"]
    closed = ["output_text.done", "content_part.done", "output_item.done"]
    begun, done = ["output_item.added", "function_call_arguments.delta"], ["function_call_arguments.done"]
    call, further = [*begun, *done, "output_item.done"], [*begun, begun[1], *done, "output_item.done"]
    assert kinds == ["created", "in_progress", *message, *closed, *further, *call, "completed"]
    response = Response.model_validate(events[-1]["response"])
    said, first, second = response.output
    assert (said.type, first.type, second.type) == ("message", "function_call", "function_call")
    assert json.loads(events[-1]["response"]["output"][1]["arguments"]) == {"a": 1}
    assert bodies.whole([(Delta(), "tool_calls")], usage([]))["output"] == events[-1]["response"]["output"]


def test_items_become_the_messages_of_a_chat() -> None:
    call = {"type": "function_call", "name": "weather", "arguments": "{}"}
    items: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]},
        {**call, "call_id": "a"},
        {**call, "call_id": "b"},
        {"type": "function_call_output", "call_id": "a", "output": "yes"},
    ]
    question = read_response(
        {"input": items, "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "weather"}}, 99
    )
    assert [message["role"] for message in question.messages] == ["system", "user", "assistant", "assistant", "tool"]
    assert [each["id"] for each in question.messages[3]["tool_calls"]] == ["a", "b"]
    assert question.messages[4]["name"] == "weather"
    assert question.tools is not None
    assert question.tools.is_required


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation"),
        ({"conversation": "c"}, "conversation", "send the whole conversation"),
        ({"store": True}, "store", "give false"),
        ({"background": True}, "background", "leave it out"),
        ({"input": []}, "input", "none empty"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input", "no text"),
        ({"input": [{"type": "reasoning"}]}, "input", "input[0].type"),
        ({"input": [{"role": "user", "content": 5}]}, "input", "needs a content"),
        ({"tools": [{"type": "web_search"}]}, "tools", "no other tools"),
        ({"max_output_tokens": 0}, "max_output_tokens", "from 1"),
        ({"text": {"format": {"type": "xml"}}}, "text", "must be text, json_object or json_schema"),
        ({"temperature": 3}, "temperature", "temperature is 3"),
    ],
)
def test_what_cannot_be_is_refused_by_the_names_of_this_endpoint(fields: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ApiError) as raised:
        read_response({"input": "x", **fields}, 1000)
    assert (raised.value.status, raised.value.param) == (400, param)
    assert says in raised.value.message
