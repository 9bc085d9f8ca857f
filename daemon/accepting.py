"""Connections taken from a listening socket, several in each turn of the event loop but not all of a burst.

The loop's own server takes one a turn: under load, when turns are long, a probe waited seconds in the socket's queue,
and once that was full, for TCP to try again. Where no descriptor is left it waits and says so; who wants to connect
waits in that queue. With TLS each connection is greeted with the certificate that is in force when it comes.
It must not know HTTP.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

import structlog
from aiohttp import web

PER_TURN = 16
PAUSE_SECONDS = 0.5  # when the system refuses another descriptor
HANDSHAKE_SECONDS = 10.0
MAX_GREETINGS = 128  # handshakes under way: who does not go on with one keeps others waiting, but no more descriptors

Factory = Callable[[], asyncio.Protocol]
Context = Callable[[], ssl.SSLContext | None]

log = structlog.get_logger(__name__)


class AcceptingSite(web.BaseSite):
    """A site of aiohttp's that listens on `listening`."""

    __slots__ = ("_context", "_listening")

    def __init__(self, runner: web.AppRunner, listening: socket.socket, context: Context) -> None:
        super().__init__(runner)
        self._listening, self._context = listening, context

    @property
    def name(self) -> str:
        return str(self._listening.getsockname())

    async def start(self) -> None:
        await super().start()
        factory = self._runner.server
        assert factory is not None, "the runner is set up first"
        self._server = Acceptor(self._listening, factory, self._context)  # type: ignore[assignment]  # as it is used


class Acceptor:
    """Takes connections from now on until `close`."""

    def __init__(self, listening: socket.socket, factory: Factory, context: Context) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening, self._factory, self._context = listening, factory, context
        self._greeting: set[asyncio.Task[None]] = set()
        self._is_full = False
        self.sockets = [listening]
        self._go_on()

    def close(self) -> None:
        if self.sockets:
            self.sockets = []
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def _go_on(self) -> None:
        if self.sockets:
            self._loop.add_reader(self._listening, self._take)

    def _take(self) -> None:
        for _ in range(PER_TURN):
            if len(self._greeting) >= MAX_GREETINGS:
                self._is_full = True
                self._loop.remove_reader(self._listening)
                return
            try:
                connection, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be taken, trying again", reason=error.strerror, seconds=PAUSE_SECONDS)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(PAUSE_SECONDS, self._go_on)
                return
            connection.setblocking(False)
            greeting = self._loop.create_task(self._greet(connection))
            self._greeting.add(greeting)
            greeting.add_done_callback(self._greeted)

    def _greeted(self, greeting: "asyncio.Task[None]") -> None:
        self._greeting.discard(greeting)
        if self._is_full:
            self._is_full = False
            self._go_on()

    async def _greet(self, connection: socket.socket) -> None:
        context = self._context()
        seconds = HANDSHAKE_SECONDS if context is not None else None
        try:
            await self._loop.connect_accepted_socket(
                self._factory, connection, ssl=context, ssl_handshake_timeout=seconds
            )
        except (OSError, TimeoutError) as error:  # it left, or is no TLS
            log.info("a connection failed before its first request", error=type(error).__name__)
            with contextlib.suppress(OSError):
                connection.close()
