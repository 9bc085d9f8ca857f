"""What every request passes: an id, the key, and errors made into the API's JSON body, whatever raised them."""

from collections.abc import Callable

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from daemon import errors
from daemon.api_keys import ApiKeys, Caller
from daemon.connections import OpenConnections
from daemon.errors import TOO_MANY_CONNECTIONS, ApiError
from daemon.missing_endpoints import missing_endpoint
from daemon.request_ids import REQUEST_ID, REQUEST_ID_HEADER, assign_request_id

CLIENT_LEFT = 499  # as proxies log it
PROBES = frozenset(("/health", "/ready", "/metrics"))
GUARDED_PATHS = ("/v1/", "/tokenize", "/detokenize")
ADMIN_PATHS = frozenset(("/config", "/incidents"))
CALLER = web.RequestKey("caller", Caller)

log = structlog.get_logger(__name__)


def error_middleware(is_draining: Callable[[], bool], note: Callable[[ApiError], None]) -> Middleware:
    """The outermost: gives the id, turns everything raised into an answer, and notes it. No traceback reaches a
    client."""

    def answer(request: web.Request, error: ApiError, *, close: bool) -> web.Response:
        note(error)
        return error_response(request, error, close=close)

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            assign_request_id(request)
            return await handler(request)
        except ApiError as error:
            return answer(request, error, close=is_draining() or error.code == TOO_MANY_CONNECTIONS)
        except web.HTTPException as error:
            response = answer(request, _of_http(request, error), close=False)
            if isinstance(error, web.HTTPMethodNotAllowed):
                response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            return response
        except ConnectionError:
            return web.Response(status=CLIENT_LEFT)  # nobody reads it
        except Exception:
            log.exception("a handler failed", request_id=request[REQUEST_ID], path=request.path)
            return answer(request, errors.internal(), close=False)

    return answer_errors


def crowd_middleware(connections: OpenConnections) -> Middleware:
    """More connections than may be are told so and closed; who asks how the daemon does is answered even then."""

    @web.middleware
    async def refuse_beyond(request: web.Request, handler: Handler) -> web.StreamResponse:
        if connections.are_too_many and request.path not in PROBES:
            raise errors.too_many_connections(connections.max_open)
        return await handler(request)

    return refuse_beyond


def key_middleware(keys: Callable[[], ApiKeys]) -> Middleware:
    """Where there are `keys()`, what costs work needs one, and operators' endpoints an administrator's; probes none."""

    @web.middleware
    async def require_key(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[CALLER] = _caller(keys(), request)
        return await handler(request)

    return require_key


def _caller(keys: ApiKeys, request: web.Request) -> Caller:
    is_for_admins = request.path in ADMIN_PATHS
    if not keys.are_required or not (is_for_admins or request.path.startswith(GUARDED_PATHS)):
        return Caller()
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    caller = keys.caller_of(given.strip()) if scheme.lower() == "bearer" else None
    if caller is None:
        message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'"
        raise ApiError(401, message, code="invalid_api_key")
    if is_for_admins and not caller.is_admin:
        message = "this is for administrators: `admin = true` in the key file makes a tenant one"
        raise ApiError(403, message, code="not_an_admin")
    return caller


def error_response(request: web.Request, error: ApiError, *, close: bool) -> web.Response:
    headers = {REQUEST_ID_HEADER: request[REQUEST_ID], **error.retry_headers()}
    response = web.json_response(error.body(), status=error.status, headers=headers)
    if close:
        response.force_close()
    return response


def _of_http(request: web.Request, error: web.HTTPException) -> ApiError:
    if isinstance(error, web.HTTPNotFound):
        return missing_endpoint(request.path)
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = " or ".join(sorted(error.allowed_methods))
        return ApiError(405, f"{request.path[:200]} takes {allowed}, not {request.method}", code="method_not_allowed")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return ApiError(413, "the body is larger than this server takes: see --max-body-size", code="body_too_large")
    return ApiError(error.status, error.reason or "the request cannot be answered")
