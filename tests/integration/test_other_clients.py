"""LangChain, LiteLLM and the `llm` tool, each from its own package, complete, stream and call a function.

They bring 270 MB of packages along: `make clients` has them in an environment of their own, behind ours, and runs this;
without them it is skipped.
"""

import asyncio
import json
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.integration.daemon_process import MODEL, DaemonProcess

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # theirs are not ours to mend

ASKED = "What is the weather in Paris?"
# `llm` knows no tool_choice: what a small model, at temperature 0, writes down of its own accord
TO_REPEAT = """Repeat this, and nothing else:
<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with DaemonProcess(tmp_path_factory.mktemp("clients")) as daemon:
        yield f"{daemon.base_url}/v1"


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM looks for prices on the net when it is imported, unless it is told not to."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def package(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return import_module(name)
        except ImportError:
            pytest.skip(f"{name} is not installed: make clients")


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def test_langchain_completes_streams_calls_a_tool_and_answers_with_its_result(url: str) -> None:
    module, messages = package("langchain_openai"), package("langchain_core.messages")

    async def story() -> None:
        chat = module.ChatOpenAI(model=MODEL, base_url=url, api_key="x", max_tokens=60, seed=1, max_retries=0)
        short = chat.bind(max_tokens=6)
        whole = await short.ainvoke(ASKED)
        assert whole.usage_metadata["output_tokens"] == whole.response_metadata["token_usage"]["completion_tokens"]
        assert "".join([chunk.content async for chunk in short.astream(ASKED)]) == whole.content
        with_tool = chat.bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False)
        called = await with_tool.ainvoke(ASKED)
        (call,) = called.tool_calls
        assert (call["name"], set(call["args"])) == ("get_weather", {"city"})
        streamed: Any = None
        async for chunk in with_tool.astream(ASKED):
            streamed = chunk if streamed is None else streamed + chunk
        assert [(each["name"], each["args"]) for each in streamed.tool_calls] == [(call["name"], call["args"])]
        result = messages.ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])
        turns = [messages.HumanMessage(ASKED), called, result]
        assert (await chat.bind_tools([get_weather]).bind(max_tokens=6).ainvoke(turns)).usage_metadata

    asyncio.run(story())


def test_litellm_completes_streams_and_calls_a_tool(url: str) -> None:
    litellm = package("litellm")
    schema: Any = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    schema["additionalProperties"] = False
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}

    async def story() -> None:
        asked: Any = {"model": f"openai/{MODEL}", "api_base": url, "api_key": "x", "seed": 1, "num_retries": 0}
        asked |= {"messages": [{"role": "user", "content": ASKED}]}
        whole = await litellm.acompletion(**asked, max_tokens=6)
        text = ""
        async for chunk in await litellm.acompletion(**asked, max_tokens=6, stream=True):
            text += chunk.choices[0].delta.content or ""
        assert text == whole.choices[0].message.content
        asked |= {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 60}
        called = await litellm.acompletion(**asked)
        (call,) = called.choices[0].message.tool_calls
        assert call.function.name == "get_weather"
        assert set(json.loads(call.function.arguments)) == {"city"}
        pieces = [chunk async for chunk in await litellm.acompletion(**asked, stream=True)]
        built = litellm.stream_chunk_builder(pieces)
        assert built.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
        assert built.choices[0].finish_reason == "tool_calls"

    asyncio.run(story())


def test_the_llm_tool_prompts_streams_and_calls_a_tool(url: str) -> None:
    models, llm = package("llm.default_plugins.openai_models"), package("llm")
    model = models.Chat(MODEL, api_base=url, model_name=MODEL, key="x", supports_tools=True)

    def ask(stream: bool) -> str:
        return str(model.prompt(ASKED, stream=stream, max_tokens=6, seed=1, key="x").text())

    assert ask(True) == ask(False)
    tool = llm.Tool.function(get_weather)
    for stream in (True, False):
        options: Any = {"stream": stream, "max_tokens": 80, "seed": 1, "temperature": 0, "key": "x"}
        response = model.prompt(TO_REPEAT, tools=[tool], **options)
        (call,) = response.tool_calls()
        assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
