"""The client's W3C trace context: what of its `traceparent` header is passed on, so that its trace goes on in ours.

Nothing is sent back: the standard has no response header that clients read, and vLLM sends none either.
"""

from aiohttp import web

from recorder.spans.trace_ids import parse_traceparent

TRACEPARENT_HEADER = "traceparent"
MAX_TRACEPARENT_CHARS = 256  # those of version 00 have 55; later versions may append


def trace_context_of(request: web.Request) -> str:
    """The header where it is valid, "" where it is absent, given twice or malformed."""
    given = request.headers.getall(TRACEPARENT_HEADER, [])
    if len(given) != 1 or len(given[0]) > MAX_TRACEPARENT_CHARS or parse_traceparent(given[0]) is None:
        return ""
    return given[0].strip()
