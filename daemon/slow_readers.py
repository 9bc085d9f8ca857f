"""An answer that does not stream is taken within the client's time, too, or its connection is cut.

What a client takes is seen by what is left to be sent: while that shrinks it is waited for. A stream bounds its own
writes (`streaming.py`). It must not know what answers say.
"""

import asyncio
import contextlib
from collections.abc import Callable

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from daemon.streaming import cut

SMALL_BYTES = 1 << 16  # what a connection holds unread in any case
LOOKS = 8  # in the time that a client has

log = structlog.get_logger(__name__)


def reader_middleware(client_seconds: Callable[[], float]) -> Middleware:
    @web.middleware
    async def send_in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        body = response.body if isinstance(response, web.Response) else None
        if isinstance(body, bytes | bytearray) and len(body) > SMALL_BYTES:
            with contextlib.suppress(ConnectionError):  # whoever goes on with this response meets it again
                await _send(request, response, client_seconds())
        return response

    return send_in_time


async def _send(request: web.Request, response: web.StreamResponse, client_seconds: float) -> None:
    """Raises ConnectionError when it has left, or is let go."""
    sending = asyncio.ensure_future(_write(request, response))
    try:
        left, since_look = -1, 0
        while not (await asyncio.wait([sending], timeout=client_seconds / LOOKS))[0]:
            before, left = left, _num_unsent(request)
            since_look = since_look + 1 if left == before else 0
            if since_look >= LOOKS:
                log.info("a client reads too slowly and is let go", path=request.path, num_bytes_left=left)
                cut(request)
                break
        await sending
    finally:
        if not sending.done():
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await sending


async def _write(request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    await response.write_eof()


def _num_unsent(request: web.Request) -> int:
    return request.transport.get_write_buffer_size() if request.transport is not None else 0
