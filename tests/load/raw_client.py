"""One streamed completion over a bare socket, cheap enough for thousands in one process. It must not know the daemon.

How it reads is its `Pace`; what it keeps is counts: events, whether the end came, how the connection ended.
"""

import asyncio
import json
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

FEW_BYTES = 1024
SLOW_SECONDS = 0.25  # between two reads of FEW_BYTES
FEW_KERNEL_BYTES = 16_384
_WAITING = "vllm:num_requests_waiting{"
MAX_KEPT_BYTES = 2_000  # of an answer that is no stream


class Pace(StrEnum):
    AT_ONCE = "at once"
    SLOWLY = "slowly"
    NEVER = "never"  # after the head of the answer


@dataclass(slots=True)
class Answer:
    """
    status       of the answer; 0: none came
    num_events   those of tokens and the end
    is_done      [DONE] was read
    body         of an answer that is no stream
    headers      names in lower case
    was_cut      the connection ended before the answer did
    """

    status: int = 0
    num_events: int = 0
    is_done: bool = False
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    was_cut: bool = False
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)


async def ask(port: int, body: dict[str, Any], pace: Pace, answer: Answer, leave: asyncio.Event | None = None) -> None:
    """Ask and read at that pace until the answer ends, or until `leave` where nothing is read."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        if pace is not Pace.AT_ONCE:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FEW_KERNEL_BYTES)
        try:
            await loop.sock_connect(connection, ("127.0.0.1", port))
            await loop.sock_sendall(connection, _request(body))
            head, _, rest = (await _until(connection, b"\r\n\r\n")).partition(b"\r\n\r\n")
            _read_head(head, answer)
            answer.has_begun.set()
            if pace is Pace.NEVER and leave is not None:
                await leave.wait()
            await _read_rest(connection, rest, pace, answer)
        except OSError:
            answer.was_cut = True
        finally:
            answer.has_begun.set()


async def num_waiting(port: int) -> int:
    """As /metrics has it."""
    page = (await get(port, "/metrics")).decode()
    return sum(int(float(line.rpartition(" ")[2])) for line in page.splitlines() if line.startswith(_WAITING))


async def num_live(port: int) -> int:
    """As /health has it."""
    return int(json.loads(await get(port, "/health"))["num_live_requests"])


async def get(port: int, path: str) -> bytes:
    """The answer's body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    _, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return body


async def _read_rest(connection: socket.socket, rest: bytes, pace: Pace, answer: Answer) -> None:
    loop, tail = asyncio.get_running_loop(), b""
    is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
    data = rest
    while True:
        if is_stream:
            text = tail + data
            answer.num_events += text.count(b'"choices"') - tail.count(b'"choices"')
            answer.is_done = answer.is_done or b"data: [DONE]" in text
            tail = text[-12:]
        else:
            answer.body = (answer.body + data)[:MAX_KEPT_BYTES]
        if answer.is_done:
            return
        data = await loop.sock_recv(connection, FEW_BYTES if pace is Pace.SLOWLY else 65_536)
        if not data:
            answer.was_cut = is_stream and not answer.is_done
            return
        if pace is Pace.SLOWLY:
            await asyncio.sleep(SLOW_SECONDS)


async def _until(connection: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        more = await asyncio.get_running_loop().sock_recv(connection, 4096)
        if not more:
            raise ConnectionError("the connection ended within the head")
        data += more
    return data


def _read_head(head: bytes, answer: Answer) -> None:
    first, *lines = head.decode("latin-1").split("\r\n")
    answer.status = int(first.split(" ")[1])
    answer.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data
