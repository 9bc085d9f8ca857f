"""What goes wrong for a client, as HTTP status and the API's error body: one class, one table of engine reasons.

Must not know aiohttp: `server.py` turns an ApiError into a response or a last event of a stream.
"""

from typing import Any

from engine.core.decisions import RejectReason, RequestRejected
from engine.core.errors import EngineError

DEFAULT_RETRY_SECONDS = 5
TOO_MANY_CONNECTIONS = "too_many_connections"


class ApiError(EngineError):
    """An answer that says no: everything a client is told about it.

    param                 the body's field at fault, None where there is none
    code                  short machine-readable name, None where the type says it all
    retry_after_seconds   for 503 and 429: without it the usual client retries at once, twice
    retry_after_ms        the same, finer, where it is known so
    is_final              the same request would fail again: clients are told not to retry
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
        retry_after_ms: int | None = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        self.retry_after_ms = retry_after_ms
        self.is_final = is_final

    def retry_headers(self) -> dict[str, str]:
        """Those that the API's own clients go by."""
        headers = {"x-should-retry": "false"} if self.is_final else {}
        if self.retry_after_seconds is not None:
            milliseconds = self.retry_after_ms or self.retry_after_seconds * 1000
            headers |= {"Retry-After": str(self.retry_after_seconds), "retry-after-ms": str(milliseconds)}
        return headers

    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        code = self.code if self.code is not None else self.status
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": code}}


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unavailable(
    message: str, code: str, retry_after_seconds: int = DEFAULT_RETRY_SECONDS, retry_after_ms: int | None = None
) -> ApiError:
    return ApiError(503, message, code=code, retry_after_seconds=retry_after_seconds, retry_after_ms=retry_after_ms)


def draining() -> ApiError:
    return unavailable("the server is shutting down and takes no new requests", "draining")


def too_many_connections(max_open: int) -> ApiError:
    message = f"{max_open} connections are open, no more may be: close idle ones, or try again later"
    return unavailable(message, TOO_MANY_CONNECTIONS)


def cut_by_drain() -> ApiError:
    return unavailable("the server is shutting down and ended this request before it was finished", "draining")


def engine_lost(retry_after_seconds: int) -> ApiError:
    message = "the engine stopped while it worked on this request: send it again"
    return unavailable(message, "engine_lost", retry_after_seconds)


def request_kills_engine(request_id: str) -> ApiError:
    message = (
        f"the engine died again while it worked on request {request_id}, which is not tried any more: "
        "change the request, and tell the operator its id, for the recording of it is kept"
    )
    return ApiError(500, message, code="request_kills_engine", is_final=True)


def expired() -> ApiError:
    message = "the request waited longer than its queue timeout and was not begun: send it again, or with more patience"
    return ApiError(504, message, code="queue_timeout", retry_after_seconds=DEFAULT_RETRY_SECONDS)


def step_failed() -> ApiError:
    message = "the engine could not compute this request; the log says why"
    return ApiError(500, message, code="step_failed", is_final=True)


def internal() -> ApiError:
    return ApiError(500, "something went wrong in the server; its log says what", code="internal_error")


def rejected(decision: RequestRejected, num_prompt_tokens: int) -> ApiError:
    """The core's refusal in the client's words, with the figures it was made on."""
    asked, limit = decision.asked, decision.limit
    milliseconds = max(1, decision.retry_after_ms)
    seconds = -(-milliseconds // 1000)
    match decision.reason:
        case RejectReason.PROMPT_TOO_LONG:
            return prompt_too_long(num_prompt_tokens, limit)
        case RejectReason.CONTEXT_TOO_LONG:
            return bad_request(
                f"{num_prompt_tokens} prompt tokens and max_tokens of {asked - num_prompt_tokens} make {asked} tokens, "
                f"at most {limit} fit the context: lower max_tokens or shorten the prompt",
                "max_tokens",
                "context_length_exceeded",
            )
        case RejectReason.EXCEEDS_KV_CACHE:
            return bad_request(
                f"the prompt has {asked} tokens, the whole KV cache holds {limit}: "
                "shorten it or serve with more KV blocks",
                "prompt",
                "context_length_exceeded",
            )
        case RejectReason.QUEUE_FULL:
            message = f"{limit} requests already wait, no more may: try again later"
            return unavailable(message, "queue_full", seconds, milliseconds)
        case RejectReason.QUEUE_TOKENS_FULL:
            message = f"{asked} prompt tokens would wait with this request, at most {limit} may: try again later"
            return unavailable(message, "queue_full", seconds, milliseconds)
        case RejectReason.TENANT_QUEUE_FULL:
            return _too_many(
                f"{limit} of your requests already wait, no more may: try again later", seconds, milliseconds
            )
        case RejectReason.TENANT_QUEUE_TOKENS_FULL:
            message = f"{asked} of your prompt tokens would wait with this request, at most {limit} may: "
            return _too_many(message + "try again later", seconds, milliseconds)
        case RejectReason.DUPLICATE_REQUEST:
            return duplicate_request_id()
        case _:
            return draining()


def _too_many(message: str, seconds: int, milliseconds: int) -> ApiError:
    return ApiError(429, message, code="tenant_queue_full", retry_after_seconds=seconds, retry_after_ms=milliseconds)


def prompt_too_long(num_prompt_tokens: int, max_prompt_tokens: int) -> ApiError:
    return bad_request(
        f"the prompt has {num_prompt_tokens} tokens, at most {max_prompt_tokens} leave room for an answer: "
        "shorten it or serve a model with a longer context",
        "prompt",
        "context_length_exceeded",
    )


def duplicate_request_id() -> ApiError:
    return bad_request(
        "a request with this id is still being worked on: give each request its own id",
        "request_id",
        "duplicate_request",
    )
