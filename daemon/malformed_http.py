"""What is no HTTP, or too long a head, gets the API's JSON error like everything else that cannot be answered.

aiohttp says it in plain text, from below the middlewares: where no request could be read there is none to pass them.
"""

import asyncio
import secrets
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from daemon import errors
from daemon.connections import OpenConnections
from daemon.errors import ApiError
from daemon.request_ids import REQUEST_ID_HEADER

MAX_HEADERS, MAX_LINE_BYTES = 64, 8_190  # of a head: half a megabyte in all
SERVER = "reprise"
OPEN_CONNECTIONS = web.AppKey("open_connections", OpenConnections)

log = structlog.get_logger(__name__)


class ApiRunner(web.AppRunner):
    """web.AppRunner whose connections answer in JSON whatever comes, and are counted."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server  # aiohttp has no place to hand in a handler's class
        assert isinstance(server, _Server)
        server.open_connections = self.app[OPEN_CONNECTIONS]
        return server


class _Server(web.Server):
    open_connections: OpenConnections

    def __call__(self) -> RequestHandler:
        return _Connection(self, self.open_connections, loop=asyncio.get_running_loop(), **self._kwargs)


class _Connection(RequestHandler):
    __slots__ = ("_open",)

    def __init__(self, server: _Server, open_connections: OpenConnections, **options: Any) -> None:
        super().__init__(
            server, max_headers=MAX_HEADERS, max_line_size=MAX_LINE_BYTES, max_field_size=MAX_LINE_BYTES, **options
        )
        self._open = open_connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open.num_open += 1
        super().connection_made(transport)
        if self._open.are_far_too_many:
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.num_open -= 1
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, UnicodeError):  # aiohttp repeats an unknown Expect, whose bytes may be no text
            status = 400
        if status >= 500:
            log.error("a connection failed", remote=request.remote, exc_info=exc)
        else:
            log.info("malformed HTTP", remote=request.remote, error=type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already, no other can follow")
        headers = {REQUEST_ID_HEADER: secrets.token_hex(12), "Server": SERVER}
        error = _error(status, exc)
        response = web.json_response(error.body(), status=error.status, headers=headers)
        response.force_close()
        return response


def _error(status: int, exc: BaseException | None) -> ApiError:
    if status >= 500:
        return errors.internal()
    if isinstance(exc, LineTooLong) or "Too many headers" in str(getattr(exc, "message", "")):
        message = f"a request's head has at most {MAX_HEADERS} headers, and {MAX_LINE_BYTES} bytes in a line of it"
        return ApiError(431, message, code="head_too_large")
    if isinstance(exc, ContentEncodingError):
        message = "the body's Content-Encoding is not taken here: send it as it is, or with gzip or deflate"
        return ApiError(415, message, code="unsupported_encoding")
    reason = " ".join(str(getattr(exc, "message", "") or "it cannot be read").split())[:200]
    return ApiError(status, f"this is not well-formed HTTP: {reason}", code="malformed_http")
