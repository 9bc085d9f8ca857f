"""Server-sent events: `id:` where there is one, one `data:` line of JSON; a comment when nothing comes; `[DONE]`.

A write waits while the client reads slowly, and raises when it has gone. It must not know what the events say.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

DONE = b"data: [DONE]\n\n"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
KEEP_ALIVE = b": keep-alive\n\n"
STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


def encode_event(body: Mapping[str, Any]) -> bytes:
    """One event; JSON escapes line ends, so it is one line whatever the text holds."""
    return b"data: " + _ENCODER.encode(body).encode("utf-8") + b"\n\n"


class EventStream:
    """A response that has begun: what follows can only be events."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response

    @classmethod
    async def begin(cls, request: web.Request, headers: Mapping[str, str]) -> "EventStream":
        response = web.StreamResponse(headers={**STREAM_HEADERS, **headers})
        await response.prepare(request)
        return cls(response)

    async def send(self, bodies: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> None:
        """Several events in one write: a client that reads slowly gets what gathered meanwhile."""
        encoded = [encode_event(body) for body in bodies]
        if ids:
            encoded = [b"id: %b\n%b" % (each.encode(), event) for each, event in zip(ids, encoded, strict=True)]
        data = b"".join(encoded)
        if data:
            await self._response.write(data)

    async def keep_alive(self) -> None:
        await self._response.write(KEEP_ALIVE)

    async def end(self) -> web.StreamResponse:
        await self._response.write(DONE)
        await self._response.write_eof()
        return self._response
