"""What gateways and vLLM's clients say in headers: how urgent a request is, whose session it belongs to, whose share.

`X-Vllm-Priority` counts where the body names no `priority`, before the key's class. `X-Session-ID` and the fairness id
of llm-d's gateway are logged with the request's end and decide nothing: tenants are those of the keys, for whoever can
write a header could name any. A recording holds neither.
"""

from aiohttp import web

from daemon.api_keys import MAX_PRIORITY
from daemon.errors import bad_request

PRIORITY_HEADER = "X-Vllm-Priority"
MAX_LOGGED_CHARS = 128
_LOGGED = {"session_id": "X-Session-ID", "fairness_id": "x-llm-d-inference-fairness-id"}


def header_priority(request: web.Request) -> int | None:
    """None where there is none. Raises ApiError 400."""
    text = request.headers.get(PRIORITY_HEADER, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and int(text) <= MAX_PRIORITY):
        message = f"{PRIORITY_HEADER} must be a class from 0, the most urgent, to {MAX_PRIORITY}"
        raise bad_request(message, PRIORITY_HEADER)
    return int(text)


def logged_ids(request: web.Request) -> dict[str, str]:
    """By the names of their fields in a log line; those that were not sent are left out."""
    given = {name: request.headers.get(header, "")[:MAX_LOGGED_CHARS] for name, header in _LOGGED.items()}
    return {name: value for name, value in given.items() if value.isprintable() and value}
