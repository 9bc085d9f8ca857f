"""The name a client knows its request by: adopted from X-Request-Id or the body, made where neither gives one."""

import secrets

from aiohttp import web

from daemon.openai_api import read_request_id

REQUEST_ID_HEADER = "X-Request-Id"
REQUEST_ID = web.RequestKey("request_id", str)
_WAS_GIVEN = web.RequestKey("request_id_was_given", bool)


def assign_request_id(request: web.Request) -> None:
    """Give `request` its id. Raises ApiError 400 for a header that cannot be one; it has a made one then."""
    request[REQUEST_ID] = secrets.token_hex(12)
    request[_WAS_GIVEN] = False
    given = request.headers.get(REQUEST_ID_HEADER, "")
    if given:
        request[REQUEST_ID] = read_request_id(given)
        request[_WAS_GIVEN] = True


def request_id_was_given(request: web.Request) -> bool:
    """By the header, which wins over the body."""
    return request[_WAS_GIVEN]
