"""Clients as the cases need them: streams that can be watched token by token and left at any moment.

Asynchronous, over aiohttp. A prompt of N tokens is N equal token ids; prompts of different requests differ from the
first token on unless they share a key.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.integration.daemon_process import MODEL

FIRST_PROMPT_TOKEN = 1_000  # ordinary words in the default model's vocabulary


def prompt_tokens(count: int, key: int = 0) -> list[int]:
    return [FIRST_PROMPT_TOKEN + key] * count


def completion(count: int = 0, key: int = 0, *, output: int | None = None, **fields: Any) -> dict[str, Any]:
    """A completions body. `output` fixes the number of output tokens."""
    body: dict[str, Any] = {"model": MODEL, "temperature": 0, "return_token_ids": True}
    if count:
        body["prompt"] = prompt_tokens(count, key)
    if output is not None:
        body |= {"max_tokens": output, "ignore_eos": True}
    return body | fields


class Stream:
    """One request in flight, streaming or not. Wait for tokens, for its end, or leave."""

    def __init__(
        self, session: aiohttp.ClientSession, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> None:
        self._session, self._path, self._body, self._headers = session, path, body, headers
        self.status = 0
        self.headers: dict[str, str] = {}
        self.answer: dict[str, Any] = {}  # of a request that does not stream, or of a refusal
        self.events: list[dict[str, Any]] = []
        self.lines: list[bytes] = []
        self.deltas: list[str] = []
        self.token_ids: list[int] = []
        self.token_times: list[float] = []
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self.is_done = False  # [DONE] was read
        self.started_at = time.monotonic()
        self.ended_at = 0.0
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._run())

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    @property
    def wants_token_ids(self) -> bool:
        return bool(self._body.get("return_token_ids"))

    @property
    def request_id(self) -> str:
        """As it was sent, or as it was answered."""
        return self._headers.get("X-Request-Id") or self.headers.get("x-request-id", "")

    async def until_accepted(self, timeout: float = 120) -> None:
        """Until the head of the answer is here: a stream's comes when the engine has queued the request."""
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: self.status > 0 or self.ended_at > 0)

    async def until_tokens(self, count: int, timeout: float = 120) -> None:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: len(self.token_ids) >= count or self._task.done() or self.ended_at > 0)

    async def until_end(self, timeout: float = 300) -> "Stream":
        async with asyncio.timeout(timeout):
            await asyncio.wait([self._task])
        if not self._task.cancelled() and self._task.exception():
            raise self._task.exception()  # type: ignore[misc]
        return self

    async def leave(self) -> None:
        """Close the socket, wherever the request is."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            async with self._session.post(self._path, json=self._body, headers=self._headers) as response:
                self.status = response.status
                self.headers = {name.lower(): value for name, value in response.headers.items()}
                async with self._changed:
                    self._changed.notify_all()
                if response.content_type == "text/event-stream":
                    await self._read_events(response)
                else:
                    self._take_answer(json.loads(await response.text()))
        finally:
            self.ended_at = time.monotonic()
            async with self._changed:
                self._changed.notify_all()

    async def _read_events(self, response: aiohttp.ClientResponse) -> None:
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            self.lines.append(line)
            payload = line[len(b"data: ") :].strip()
            if payload == b"[DONE]":
                self.is_done = True
                continue
            self._take_event(json.loads(payload.decode("utf-8")))
            async with self._changed:
                self._changed.notify_all()

    def _take_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.error = event.get("error", self.error)
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices", []):
            self.deltas.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
            new = choice.get("token_ids") or []
            self.token_ids += new
            self.token_times += [time.monotonic()] * len(new)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _take_answer(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.error = answer.get("error")
        self.usage = answer.get("usage")
        for choice in answer.get("choices", []):
            self.deltas.append(choice.get("text") or choice.get("message", {}).get("content") or "")
            self.token_ids += choice.get("token_ids") or []
            self.finish_reason = choice.get("finish_reason")


class Client:
    """Sends requests to one daemon; every request has a connection of its own."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def send(
        self, body: dict[str, Any], *, path: str = "/v1/completions", headers: dict[str, str] | None = None
    ) -> Stream:
        return Stream(self._session, path, body, headers or {})

    async def ask(self, body: dict[str, Any], *, path: str = "/v1/completions") -> Stream:
        """Send and wait for the end."""
        return await self.send(body, path=path).until_end()

    async def post_raw(self, path: str, data: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        async with self._session.post(path, data=data, headers=headers) as response:
            return response.status, await response.read()


@asynccontextmanager
async def connect(base_url: str) -> AsyncIterator[Client]:
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(base_url, timeout=timeout, connector=connector) as session:
        yield Client(session)
