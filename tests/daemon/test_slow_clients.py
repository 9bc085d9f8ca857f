"""Clients that hold a connection without using it: half a request's head, no body's end, answers that nobody takes."""

import asyncio
import contextlib
import errno
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from daemon.application import listen
from tests.daemon.served import Served, completion, serving

PATIENCE = 0.5


@contextlib.asynccontextmanager
async def impatient(**options: Any) -> AsyncIterator[tuple[Served, str, int]]:
    """A server, listening as the daemon does, whose clients must be quick; its address."""
    async with serving(client_timeout=PATIENCE, **options) as served:
        address = socket.create_server(("127.0.0.1", 0))
        address.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # else megabytes lie in the kernel, unread
        address.setblocking(False)
        runner = await listen(served.service, served.calls, [address])
        try:
            host, port = runner.addresses[0][:2]
            yield served, host, port
        finally:
            await runner.cleanup()


def tell(story: Callable[[Served, str, int], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def told() -> None:
        async with impatient(**options) as (served, host, port):
            await story(served, host, port)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: 1"])
def test_a_connection_that_brings_no_whole_head_is_closed(sent: bytes) -> None:
    async def story(served: Served, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(sent)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()

    tell(story)


def test_a_head_that_grows_byte_by_byte_wins_no_time() -> None:
    async def story(served: Served, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        async with asyncio.timeout(30):
            while not reader.at_eof():
                with contextlib.suppress(ConnectionError, TimeoutError):
                    writer.write(b"a")
                    async with asyncio.timeout(0.05):
                        assert await reader.read(1) == b""
        writer.close()

    tell(story)


def test_a_body_that_does_not_end_is_answered_408() -> None:
    async def story(served: Served, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        async with asyncio.timeout(30):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()

    tell(story)


def test_a_stream_that_nobody_reads_is_cancelled_and_a_slow_reader_is_not() -> None:
    """The first takes nothing at all; the second little by little, but it takes."""
    body = json.dumps(completion(stream=True, max_tokens=200, logprobs=5, prompt=[[1, 2]] * 3)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def ask(host: str, port: int) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, port))
        client.sendall(head + body)
        client.setblocking(False)
        return client

    async def ends_well(client: socket.socket) -> bool:
        try:
            while await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                pass
        except ConnectionError:
            return False
        return True

    async def story(served: Served, host: str, port: int) -> None:
        with ask(host, port) as client:
            await served.until(lambda: served.calls.num_open == 1)
            await served.until(lambda: served.calls.num_open == 0, 60)
            assert not await ends_well(client)
        loop = asyncio.get_running_loop()
        with ask(host, port) as client:
            taken = b""
            async with asyncio.timeout(60):
                while b"data: [DONE]" not in taken[-100:]:
                    taken += await loop.sock_recv(client, 100_000)
                    await asyncio.sleep(0.01)

    tell(story)


@pytest.mark.slow
def test_an_answer_that_is_no_stream_and_that_nobody_reads_is_cut_and_a_slow_reader_gets_all_of_it() -> None:
    body = json.dumps({"prompt": "x" * 300_000}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def ask(host: str, port: int) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, port))
        client.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(client, head + body)
        return client

    async def story(served: Served, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        with await ask(host, port) as client:
            await served.until(lambda: served.calls.num_open == 0, 60)
            errors = (client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for _ in iter(int, 1))
            await served.until(lambda: next(errors) == errno.ECONNRESET, 60)
        with await ask(host, port) as client:
            taken = b""
            async with asyncio.timeout(60):
                while piece := await loop.sock_recv(client, 30_000):
                    taken += piece
                    await asyncio.sleep(0.02)
            assert json.loads(taken.partition(b"\r\n\r\n")[2])["count"] == 300_000

    tell(story)
