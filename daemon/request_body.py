"""A request's body: within its time and its size, and few large ones at once, for each is in memory several times over.

It must not know what it says.
"""

import asyncio
from contextlib import nullcontext

from aiohttp import web

from daemon import errors
from daemon.errors import ApiError
from daemon.fields import Body
from daemon.json_body import parse_object
from daemon.service import Service

LARGE_BYTES = 1 << 20  # also one that does not say how large it is


async def read_object(service: Service, request: web.Request) -> Body:
    """Raises ApiError for what is no JSON object, is too large, or does not come in time."""
    length = request.content_length
    is_large = request.body_exists and (length is None or length > LARGE_BYTES)
    seconds = service.config.client_timeout
    try:
        async with asyncio.timeout(seconds), service.large_bodies if is_large else nullcontext():
            return parse_object(await request.read())
    except TimeoutError as error:
        if is_large and service.large_bodies.locked():
            raise errors.unavailable("other large bodies are being read: try again later", "overloaded") from error
        raise ApiError(408, f"the body was not complete within {seconds:g} s", code="body_timeout") from error
    except web.RequestPayloadError as error:
        raise errors.bad_request("the body cannot be read: it is not encoded as its headers say") from error
