"""Which pages of other sites may ask from a browser: none, unless their origins are listed (--cors-origins).

A page that may is told so in each answer, refusals included, and by the preflight that its browser sends before.
Cookies are never let through: a key comes in the Authorization header, which a page must have. Only the API's own
endpoints are open to pages, not the operators'.
"""

import re
from collections.abc import Awaitable, Callable, Collection

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

ANY = "*"
MAX_AGE_SECONDS = 600
METHODS = "GET, POST"
EXPOSED = "X-Request-Id, X-Reprise-Seed, X-Reprise-Resume-Seconds, Retry-After, Retry-After-Ms"
OPEN_PATHS = ("/v1/", "/tokenize", "/detokenize", "/openapi.json")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}(\s*,\s*[A-Za-z0-9_-]{1,64}){0,31}")

Origins = Callable[[], Collection[str]]


def preflight_middleware(origins: Origins) -> Middleware:
    """Answers the browser's question whether a page may ask; before any key is looked for, for it brings none."""

    @web.middleware
    async def answer_preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_asked = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if not is_asked or not allowed_origin(origins(), request):
            return await handler(request)
        headers = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(MAX_AGE_SECONDS)}
        wanted = request.headers.get("Access-Control-Request-Headers", "").strip()
        if _HEADER_NAMES.fullmatch(wanted):
            headers["Access-Control-Allow-Headers"] = wanted
        return web.Response(status=204, headers=headers)

    return answer_preflight


def tell_origin(origins: Origins) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """For `on_response_prepare`: so that streams and errors have it too."""

    async def tell(request: web.Request, response: web.StreamResponse) -> None:
        listed = origins()
        if not listed or not request.path.startswith(OPEN_PATHS):
            return
        if ANY not in listed:
            response.headers.add("Vary", "Origin")  # whoever keeps answers must not give this one to another site
        origin = allowed_origin(listed, request)
        if origin:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED

    return tell


def allowed_origin(listed: Collection[str], request: web.Request) -> str:
    """What the page is told, "" for one that may not ask."""
    origin = request.headers.get("Origin", "")
    if not origin or not request.path.startswith(OPEN_PATHS):
        return ""
    return ANY if ANY in listed else origin if origin in listed else ""
