"""Server-sent events: `id:` where there is one, one `data:` line of JSON; a comment when nothing comes; `[DONE]`.

A write waits while the client reads slowly, and raises when it has gone, or is given up: what one write has left in
this process, 64 KiB and an event at most, must have been taken within the client's time. It must not know what the
events say.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from daemon.long_json import long_json

DONE = b"data: [DONE]\n\n"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
KEEP_ALIVE = b": keep-alive\n\n"
STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


def encode_event(body: Mapping[str, Any], encode: Callable[[Any], str] = _ENCODER.encode) -> bytes:
    """One event, named where its body has a type; JSON escapes line ends, so it is one line whatever the text holds."""
    name = b"event: " + body["type"].encode() + b"\n" if "type" in body else b""
    return name + b"data: " + encode(body).encode("utf-8") + b"\n\n"


class SlowClient(ConnectionError):
    """It reads too slowly to be waited for; its connection has been closed."""


class EventStream:
    """A response that has begun: what follows can only be events. Writing raises ConnectionError, SlowClient."""

    def __init__(self, request: web.Request, response: web.StreamResponse, client_seconds: float) -> None:
        self._request = request
        self._response = response
        self._client_seconds = client_seconds

    @classmethod
    async def begin(cls, request: web.Request, headers: Mapping[str, str], client_seconds: float) -> "EventStream":
        """`client_seconds`: in which what is written at once must have been taken."""
        response = web.StreamResponse(headers={**STREAM_HEADERS, **headers})
        await response.prepare(request)
        return cls(request, response, client_seconds)

    async def send(self, bodies: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> None:
        """Several events in one write: a client that reads slowly gets what gathered meanwhile."""
        await self._send([encode_event(body) for body in bodies], ids)

    async def send_long(self, bodies: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> None:
        """The same of bodies that hold megabytes: encoded in a thread."""
        await self._send(await asyncio.to_thread(lambda: [encode_event(body, long_json) for body in bodies]), ids)

    async def _send(self, encoded: list[bytes], ids: Sequence[str]) -> None:
        if ids:
            encoded = [b"id: %b\n%b" % (each.encode(), event) for each, event in zip(ids, encoded, strict=True)]
        data = b"".join(encoded)
        if data:
            await self._write(data)

    async def keep_alive(self) -> None:
        await self._write(KEEP_ALIVE)

    async def end(self) -> web.StreamResponse:
        await self._write(DONE)
        await self._response.write_eof()
        return self._response

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._client_seconds):
                await self._response.write(data)
        except TimeoutError as error:
            cut(self._request)
            raise SlowClient from error


def cut(request: web.Request) -> None:
    """At once, what it has not taken included: its end of the connection is told that this is no end."""
    transport = request.transport
    if transport is not None:
        at_once = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        transport.abort()
