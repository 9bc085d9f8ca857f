"""A small server that speaks the API's streaming format, for the load generator to be measured against.

It runs in a thread with a loop of its own, as a stranger would. What it answers is a function, so a test can make it
slow, wrong or dependent on its company.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from aiohttp import web

MODEL = "a-model"


class Exchange:
    """One request being answered.

    number     counts from 0 in the order of arrival, warm-ups left out (they count from -1 down)
    num_live   requests under way, this one included, when it arrived
    """

    def __init__(self, request: web.Request, body: dict[str, Any], number: int, num_live: int) -> None:
        self.request = request
        self.body = body
        self.number = number
        self.num_live = num_live
        self.is_chat = request.path.endswith("/chat/completions")
        self.response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})

    async def begin(self) -> None:
        await self.response.prepare(self.request)
        if self.is_chat:
            await self.send({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})

    async def send(self, event: dict[str, Any]) -> None:
        await self.send_line(b"data: " + json.dumps(event).encode())

    async def send_line(self, line: bytes) -> None:
        await self.response.write(line + b"\n\n")

    async def token(self, text: str, token_ids: list[int] | None = None) -> None:
        choice: dict[str, Any] = {"delta": {"content": text}} if self.is_chat else {"text": text}
        choice["finish_reason"] = None
        if token_ids is not None:
            choice["token_ids"] = token_ids
        await self.send({"choices": [choice], "usage": None})

    async def end(self, num_output_tokens: int | None) -> None:
        closing: dict[str, Any] = {"delta": {}} if self.is_chat else {"text": ""}
        await self.send({"choices": [{**closing, "finish_reason": "length"}]})
        if num_output_tokens is not None:
            usage = {"prompt_tokens": 77, "completion_tokens": num_output_tokens}
            await self.send({"choices": [], "usage": usage})
        await self.send_line(b"data: [DONE]")


Answerer = Callable[[Exchange], Awaitable[web.StreamResponse]]


async def whole_answer(exchange: Exchange) -> web.StreamResponse:
    """max_tokens tokens that depend on the prompt alone."""
    return await tokens_of(exchange, salt="")


async def tokens_of(exchange: Exchange, salt: str) -> web.StreamResponse:
    body = exchange.body
    prompt = json.dumps(body.get("prompt") or body["messages"])
    digest = hashlib.sha256((prompt + salt).encode()).digest()
    await exchange.begin()
    for position in range(body["max_tokens"]):
        token = digest[position % len(digest)]
        await exchange.token(f" w{token}", [token] if body.get("return_token_ids") else None)
    await exchange.end(body["max_tokens"] if body.get("stream_options") else None)
    return exchange.response


class BenchServer:
    """`with BenchServer(answer) as server:` listens on `server.url`.

    log      names of the servers, one for each request as it came; give several servers the same list
    bodies   of the requests, in the order in which they came; `warmups` apart
    """

    def __init__(
        self,
        answer: Answerer = whole_answer,
        *,
        models: tuple[str, ...] = (MODEL,),
        api_key: str = "",
        name: str = "",
        log: list[str] | None = None,
    ) -> None:
        self._answer = answer
        self._models = models
        self._api_key = api_key
        self._name = name
        self.log = log if log is not None else []
        self.bodies: list[dict[str, Any]] = []
        self.warmups: list[dict[str, Any]] = []
        self.num_live = 0
        self.num_live_at_arrival: list[int] = []
        self._is_listening = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> "BenchServer":
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        app = web.Application()
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._is_listening.set()
        await self._end.wait()
        await runner.cleanup()

    def _refusal(self, request: web.Request) -> web.Response | None:
        if self._api_key and request.headers.get("Authorization") != f"Bearer {self._api_key}":
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        return None

    async def _list_models(self, request: web.Request) -> web.Response:
        listed = web.json_response({"object": "list", "data": [{"id": model} for model in self._models]})
        return self._refusal(request) or listed

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        body = json.loads(await request.text())
        if body["max_tokens"] == 8:  # no request of W1 to W4 asks for so few
            self.warmups.append(body)
            return await whole_answer(Exchange(request, body, -len(self.warmups), 1))
        self.bodies.append(body)
        self.log.append(self._name)
        self.num_live += 1
        self.num_live_at_arrival.append(self.num_live)
        try:
            return await self._answer(Exchange(request, body, len(self.bodies) - 1, self.num_live))
        finally:
            self.num_live -= 1
