"""What every request to the viewer passes: access, the headers that forbid, and errors made into JSON.

Everything in it is also true of answers that failed. It must not know what is shown.
"""

from typing import TypeVar

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from engine.core.errors import EngineError
from replay.refusal import CannotCompare
from replay.viewer.access import HEADERS, Access, Asked
from replay.viewer.errors import BadQuestion, error_body

_Response = TypeVar("_Response", bound=web.StreamResponse)

log = structlog.get_logger(__name__)


def guard(access: Access | None) -> Middleware:
    """`access`: None where whoever can connect has been let in already."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = _asked(request, access)
        refused = access.refusal(asked) if access is not None else None
        if refused is not None:
            return _with_headers(web.json_response(error_body(refused.reason), status=refused.status))
        if access is not None and access.brings_token(asked) and request.method == "GET":
            return _with_headers(_without_token(request, access))
        try:
            return _with_headers(await handler(request))
        except BadQuestion as error:
            return _failed(error.status, str(error), error.field)
        except CannotCompare as refusal:
            return _failed(404, f"{refusal.reason}: {refusal.remedy}")
        except web.HTTPException as error:
            return _failed(error.status, f"{request.method} {request.path[:200]}: {error.reason}")
        except ConnectionError:
            raise
        except (EngineError, OSError) as error:
            return _failed(500, str(error))
        except Exception:
            log.exception("the viewer failed", path=request.path[:200])
            return _failed(500, "this could not be answered: the server's log says why")

    return answer


def forbid(response: web.StreamResponse) -> None:
    """Set the headers; of a stream before it is prepared."""
    for name, value in HEADERS.items():
        response.headers[name] = value


def _asked(request: web.Request, access: Access | None) -> Asked:
    return Asked(
        request.headers.get("Host", ""),
        request.query.get("token", ""),
        request.cookies.get(access.cookie_name, "") if access is not None else "",
        request.headers.get("Authorization", ""),
        request.headers.get("Sec-Fetch-Site", ""),
        request.headers.get("Sec-Fetch-Mode", ""),
    )


def _without_token(request: web.Request, access: Access) -> web.Response:
    """To the same place; a browser keeps what stands behind # in the address."""
    place = request.rel_url.without_query_params("token")
    response = web.Response(status=303, headers={"Location": str(place)})
    response.set_cookie(access.cookie_name, access.cookie_value, httponly=True, samesite="Lax", path=access.root)
    return response


def _failed(status: int, message: str, field: str = "") -> web.Response:
    return _with_headers(web.json_response(error_body(message, field), status=status))


def _with_headers(response: _Response) -> _Response:
    if not response.prepared:
        forbid(response)
    return response
