"""Ids of traces and spans: what the client gave (W3C Trace Context), else digests of what the stream says of a request.

So the daemon, its log lines and whoever reads the recording later call the same request by the same ids.

Source: W3C Trace Context, level 2, section 3.2 (traceparent).
"""

import hashlib
import re
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


class TraceParent(NamedTuple):
    """The client's span, which ours becomes a child of."""

    trace_id: int
    span_id: int
    is_sampled: bool


def parse_traceparent(text: str) -> TraceParent | None:
    """None for what is no traceparent: such a header is to be ignored. What a later version adds is left out."""
    found = _TRACEPARENT.fullmatch(text.strip())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    parent = TraceParent(int(found[2], 16), int(found[3], 16), bool(int(found[4], 16) & _SAMPLED))
    return parent if parent.trace_id and parent.span_id else None


def trace_id_of(request_id: str, arrival_ns: int, trace_context: str) -> int:
    """128 bits: the client's trace, or one of the request's own."""
    parent = parse_traceparent(trace_context)
    return parent.trace_id if parent is not None else _digest(f"{request_id}\0{arrival_ns}", 16)


def span_id_of(request_id: str, arrival_ns: int, number: int) -> int:
    """64 bits; number 0 is the request's own span, those from 1 on its children."""
    return _digest(f"{request_id}\0{arrival_ns}\0{number}", 8)


def context_below(request_id: str, arrival_ns: int, trace_context: str) -> str:
    """The traceparent of what belongs to a request: its trace, its own span as the parent, sampled as it is."""
    parent = parse_traceparent(trace_context)
    trace_id, span_id = trace_id_of(request_id, arrival_ns, trace_context), span_id_of(request_id, arrival_ns, 0)
    return f"00-{trace_id:032x}-{span_id:016x}-{int(parent is None or parent.is_sampled):02x}"


def _digest(text: str, num_bytes: int) -> int:
    """Never 0, which stands for no id."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=num_bytes).digest()) or 1
