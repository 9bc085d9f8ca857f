"""LangChain, LiteLLM and the `llm` tool, each from its own package, complete, stream and call a function.

They bring many packages along: `pip install -e ".[clients]"` has them, and without them this is skipped.
"""

import asyncio
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.daemon.served import MODEL, Served
from tests.daemon.test_server import Tell, shared_server

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # theirs are not ours to mend


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server()


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
            pytest.skip(f"{name} is not installed: pip install -e '.[clients]'")


def weather(city: str) -> str:
    """The weather in a city."""
    return city


def test_langchain_completes_streams_and_calls(tell: Tell) -> None:
    chat_openai = package("langchain_openai").ChatOpenAI

    async def story(served: Served) -> None:
        chat = chat_openai(model=MODEL, base_url=f"{served.base_url}/v1", api_key="x", max_tokens=6, seed=1)
        whole = await chat.ainvoke("hello")
        assert whole.usage_metadata["output_tokens"] == whole.response_metadata["token_usage"]["completion_tokens"]
        assert "".join([chunk.content async for chunk in chat.astream("hello")]) == whole.content
        called = await chat.bind_tools([weather], tool_choice="weather").ainvoke("hello")
        calls = [*called.tool_calls, *called.invalid_tool_calls]  # the runner without weights writes no JSON
        assert [call["name"] for call in calls] == ["weather"]

    tell(story)


def test_litellm_completes_and_streams(tell: Tell) -> None:
    litellm = package("litellm")

    async def story(served: Served) -> None:
        asked = {"model": f"openai/{MODEL}", "api_base": f"{served.base_url}/v1", "api_key": "x", "max_tokens": 6}
        asked |= {"messages": [{"role": "user", "content": "hello"}], "seed": 1}
        whole = await litellm.acompletion(**asked)
        text = ""
        async for chunk in await litellm.acompletion(**asked, stream=True):
            text += chunk.choices[0].delta.content or ""
        assert text == whole.choices[0].message.content

    tell(story)


def test_the_llm_tool_prompts_and_streams(tell: Tell) -> None:
    models = package("llm.default_plugins.openai_models")

    async def story(served: Served) -> None:
        model = models.Chat(MODEL, api_base=f"{served.base_url}/v1", model_name=MODEL, key="x")

        def ask(stream: bool) -> str:
            return str(model.prompt("hello", stream=stream, max_tokens=6, seed=1, key="x").text())

        assert await asyncio.to_thread(ask, True) == await asyncio.to_thread(ask, False)

    tell(story)
