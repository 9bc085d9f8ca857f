"""Bytes that pretend to be HTTP: well-formed requests, bent, cut, doubled, or never ended; by seed, the same each time.

It must not know what the daemon makes of them.
"""

import gzip
import random
import zlib
from typing import NamedTuple

_PATHS = ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/health", "/metrics", "/v1/models"]
_PATHS += ["/", "/config", "/incidents", "/v1/streams/x", "/v1/embeddings", "/viewer/", "/openapi.json", "/version"]
_METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "B\x00D", "A" * 300]
_TARGETS = [
    "*",
    "http://other/health",
    "//",
    "/%",
    "/%00",
    "/" + "a" * 9_000,
    "/v1/../config",
    "/?" + "q=1&" * 3_000,
    "/\xff",
]
_HEADERS = [
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: \x0bchunked",
    b"Expect: 100-continue",
    b"Expect: 200-ok",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    b"Connection: close, keep-alive",
    b"Content-Encoding: gzip",
    b"Content-Encoding: deflate",
    b"Content-Encoding: br",
    b"Content-Type: multipart/form-data; boundary=x",
    b"Content-Type: application/json; charset=nonsense",
    b"Authorization: Bearer \xff\xfe",
    b"Authorization: " + b"B" * 7_000,
    b"X-Request-Id: " + b"i" * 300,
    b"X-Request-Id: \x01",
    b"Last-Event-ID: 99999999999999999999999.7",
    b"X-Reprise-Resume-Seconds: 1",
    b"traceparent: 00-" + b"0" * 32 + b"-x-01",
    b"Cookie: " + b"a=b; " * 1_500,
    b"X: " + b"y" * 9_000,
    b"No colon",
    b": no name",
    b" folded: yes",
    b"Range: bytes=0-",
    b"Origin: https://evil.example",
]
CLOSING = b"Connection: close"


class Attack(NamedTuple):
    """
    pieces     sent one after the other
    leaves     the connection is closed right after, whatever is answered
    half_ends  the sending side is closed, and the answer is waited for
    """

    pieces: tuple[bytes, ...]
    leaves: bool = False
    half_ends: bool = False


def request(method: str, target: str, body: bytes, headers: list[bytes]) -> bytes:
    """Closed after its answer, unless its `headers` say something else of the connection."""
    first = f"{method} {target} HTTP/1.1".encode("latin-1", "replace")
    lines = [first, b"Host: x", *headers]
    if not any(b"Connection: " in line for line in headers):
        lines.append(CLOSING)
    if not any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in headers):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def hostile_bytes(draw: random.Random, body: bytes) -> Attack:
    """One connection's worth."""
    method, target = draw.choice(["POST", "POST", draw.choice(_METHODS)]), draw.choice(_PATHS)
    if draw.random() < 0.1:
        target = draw.choice(_TARGETS)
    headers = draw.sample(_HEADERS, draw.choice([0, 1, 1, 2, 3]))
    if any(b"gzip" in header for header in headers) and draw.random() < 0.7:
        body = draw.choice(
            [gzip.compress(body), gzip.compress(b" " * 40_000_000, 1), gzip.compress(body)[:-5], b"\x1f\x8b"]
        )
    elif any(b"deflate" in header for header in headers):
        body = zlib.compress(body)
    if any(b"chunked" in header for header in headers) and draw.random() < 0.7:
        size = draw.choice([b"%x" % len(body), b"fffffffffffffffff", b"-1", b"%x;ext=1" % len(body), b""])
        body = size + b"\r\n" + body + draw.choice([b"\r\n0\r\n\r\n", b"", b"\r\n0\r\nX: y\r\n\r\n"])
    data = request(method, target, body, headers)
    return _bend(draw, data)


def _bend(draw: random.Random, data: bytes) -> Attack:
    kind = draw.randrange(12)
    if kind == 0:
        return Attack((data[: draw.randrange(len(data))],), leaves=draw.random() < 0.5, half_ends=draw.random() < 0.5)
    if kind == 1:
        at = draw.randrange(min(len(data), 400))
        return Attack((data[:at] + draw.randbytes(draw.randrange(1, 6)) + data[at + 1 :],))
    if kind == 2:
        return Attack((data.replace(CLOSING + b"\r\n", b"") * draw.randrange(2, 20),))  # pipelined
    if kind == 3:
        cuts = sorted(draw.randrange(len(data)) for _ in range(3))
        return Attack(
            (data[: cuts[0]], data[cuts[0] : cuts[1]], data[cuts[1] : cuts[2]], data[cuts[2] :]), half_ends=True
        )
    if kind == 4:
        return Attack((data,), leaves=True)
    if kind == 5:
        return Attack((draw.randbytes(draw.randrange(1, 3_000)),))
    if kind == 6:
        many = b"".join(b"H%d: v\r\n" % number for number in range(draw.choice([100, 500, 3_000])))
        return Attack((data.replace(b"Host: x\r\n", b"Host: x\r\n" + many, 1),))
    if kind == 7:
        return Attack((), leaves=True)
    return Attack((data,), half_ends=draw.random() < 0.05)
