"""What is no HTTP, or too long a head, gets the API's JSON error like everything else that cannot be answered.

aiohttp says it in plain text, from below the middlewares: where no request could be read there is none to pass them.
"""

import asyncio
import secrets

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from daemon import errors
from daemon.errors import ApiError
from daemon.request_ids import REQUEST_ID_HEADER

log = structlog.get_logger(__name__)


class ApiRunner(web.AppRunner):
    """web.AppRunner whose connections answer in JSON whatever comes."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server  # aiohttp has no place to hand in a handler's class
        return server


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._kwargs)


class _Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("a connection failed", remote=request.remote, exc_info=exc)
        else:
            log.info("malformed HTTP", remote=request.remote, error=type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already, no other can follow")
        headers = {REQUEST_ID_HEADER: secrets.token_hex(12)}
        response = web.json_response(_error(status, exc).body(), status=status, headers=headers)
        response.force_close()
        return response


def _error(status: int, exc: BaseException | None) -> ApiError:
    if status >= 500:
        return errors.internal()
    reason = " ".join(str(getattr(exc, "message", "") or "it cannot be read").split())[:200]
    return ApiError(status, f"this is not well-formed HTTP: {reason}", code="malformed_http")
