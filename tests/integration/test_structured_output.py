"""Structured output and calls of functions by the default model, through the official client: valid, streamed alike.

The recording of all of it is checked, executed and, for one call, isolated at the end.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.integration.daemon_process import MODEL, reprise
from tests.integration.served import Served, serve

DESCRIBE: Any = [{"role": "user", "content": "Describe a person as JSON."}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["rain", "bread", "trains"]}, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
TIME: Any = {"type": "function", "function": {"name": "get_time", "description": "The time of day."}}
ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("tools")
    with serve(directory, max_num_seqs=4) as served:
        yield served
    alone = reprise("isolate", str(served.daemon.recording), "a-call")
    assert alone.returncode == 0, alone.stdout


def client_of(served: Served) -> OpenAI:
    return OpenAI(base_url=f"{served.daemon.base_url}/v1", api_key="none", max_retries=0, timeout=120)


def test_answers_under_a_schema_are_valid_and_the_same_streamed(served: Served) -> None:
    with client_of(served) as client:
        chat = client.chat.completions.create(
            model=MODEL, messages=DESCRIBE, response_format=FORMAT, max_tokens=150, seed=3, n=3
        )
        for choice in chat.choices:
            assert choice.finish_reason == "stop"
            person = json.loads(choice.message.content or "")
            assert set(person) == {"name", "age", "likes"}
            assert 0 <= person["age"] <= 150
            assert set(person["likes"]) <= {"rain", "bread", "trains"}
        chunks = client.chat.completions.create(
            model=MODEL, messages=DESCRIBE, response_format=FORMAT, max_tokens=150, seed=3, stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == chat.choices[0].message.content
        cut = client.chat.completions.create(model=MODEL, messages=DESCRIBE, response_format=FORMAT, max_tokens=3)
        assert cut.choices[0].finish_reason == "length"
        colour = client.completions.create(
            model=MODEL, prompt="The sky is", max_tokens=20, extra_body={"guided_choice": ["blue", "green"]}
        )
        assert colour.choices[0].text in ("blue", "green")


def test_a_call_is_whole_by_its_schema_the_same_streamed_and_its_result_is_answered(served: Served) -> None:
    asked: Any = {"model": MODEL, "messages": ASKED, "tools": [WEATHER, TIME], "max_tokens": 80, "temperature": 0}
    asked |= {"tool_choice": "required", "parallel_tool_calls": False}
    with client_of(served) as client:
        chat = client.chat.completions.create(**asked, extra_headers={"X-Request-Id": "a-call"})
        (choice,) = chat.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert call.type == "function"
        if call.function.name == "get_weather":
            assert set(json.loads(call.function.arguments)) == {"city", "unit"}
        name, arguments, reasons = "", "", []
        for chunk in client.chat.completions.create(**asked, stream=True):
            assert not chunk.choices[0].delta.content
            reasons.append(chunk.choices[0].finish_reason)
            for piece in chunk.choices[0].delta.tool_calls or ():
                assert piece.function is not None
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
        assert (name, arguments, reasons[-1]) == (call.function.name, call.function.arguments, "tool_calls")
        messages = [*ASKED, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "rain, 12 degrees"}]
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], max_tokens=20)
        assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
        assert answer.usage is not None
        assert chat.usage is not None
        assert answer.usage.prompt_tokens_details is not None


def test_a_named_function_is_called_and_the_model_may_answer_in_words(served: Served) -> None:
    with client_of(served) as client:
        named = client.chat.completions.create(
            model=MODEL,
            messages=ASKED,
            tools=[WEATHER, TIME],
            tool_choice={"type": "function", "function": {"name": "get_weather"}},
            max_tokens=80,
            n=2,
        )
        for choice in named.choices:
            assert choice.message.tool_calls is not None
            (call,) = choice.message.tool_calls
            assert call.type == "function"
            assert json.loads(call.function.arguments)["unit"] in ("celsius", "fahrenheit")
        free = client.chat.completions.create(model=MODEL, messages=ASKED, tools=[WEATHER, TIME], max_tokens=24)
        assert free.choices[0].message.content or free.choices[0].message.tool_calls


def test_a_call_and_an_answer_under_a_schema_go_on_where_their_client_broke_off(served: Served) -> None:
    """With log-probabilities and usage, at every kind of place: in a name, in arguments, behind the end."""
    chat: Any = {"model": MODEL, "stream": True, "seed": 2, "max_tokens": 40, "logprobs": True, "top_logprobs": 2}
    chat |= {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    bodies: list[Any] = [
        {**chat, "messages": ASKED, "tools": [WEATHER], "tool_choice": "required"},
        {**chat, "messages": DESCRIBE, "response_format": FORMAT},
    ]
    with httpx.Client(base_url=served.daemon.base_url, timeout=120) as client:
        for kind, body in enumerate(bodies):
            whole = events_of(client, body, {})
            assert len(whole) > 8, "it is long enough to be broken off"
            for num_read in (3, len(whole) // 2, len(whole) - 1):
                request_id = f"broken-{kind}-{num_read}"
                wanted = {"X-Request-Id": request_id, "X-Reprise-Resume-Seconds": "60"}
                first = events_of(client, body, wanted, num_read)
                rest = events_of(client, {}, {"X-Request-Id": request_id, "Last-Event-ID": first[-1][0]})
                assert first + rest == whole, num_read
        refused = client.post("/v1/responses", json={"input": "x", "stream": True}, headers=wanted)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "X-Reprise-Resume-Seconds")
        refused = client.post("/v1/chat/completions", json={**bodies[1], "n": 2}, headers=wanted)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "X-Reprise-Resume-Seconds")


def events_of(client: httpx.Client, body: Any, headers: dict[str, str], num: int = 1 << 20) -> list[tuple[str, Any]]:
    """(id, what it says) of so many events, then the connection is broken; without what names the call."""
    events: list[tuple[str, Any]] = []
    with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status_code == 200, response.read()
        event_id = ""
        for line in response.iter_lines():
            if line.startswith("id: "):
                event_id = line[4:]
            elif line.startswith("data: {"):
                told = json.loads(line[6:])
                choices = json.loads(json.dumps(told["choices"]).replace(told["id"], ""))
                events.append((event_id, (choices, told["usage"])))
                if len(events) == num:
                    break
    return events
