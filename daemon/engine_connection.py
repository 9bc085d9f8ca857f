"""The daemon's end of the socket pair: frames out, messages in. It must not know what the messages mean."""

import asyncio
from collections.abc import Callable
from typing import cast

from engine.protocol import FrameDecoder, Message, ProtocolError, encode

MAX_UNSENT_BYTES = 128 * 1024 * 1024  # beyond it the engine reads too slowly to be given more


class EngineConnection(asyncio.Protocol):
    """Calls `on_message` for each message, in order; `closed` is done when the engine's end is closed.

    `closed` holds a ProtocolError when the engine sent what cannot be read; None otherwise.
    """

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[ProtocolError | None] = asyncio.get_running_loop().create_future()

    @property
    def is_full(self) -> bool:
        return self._transport is None or self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES

    def send(self, message: Message) -> None:
        """Queue `message` for sending; without effect once the connection is closed.

        Raises ProtocolError for a message beyond the bound of a frame.
        """
        frame = encode(message)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own are none by inheritance

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._on_message(message)
        except ProtocolError as error:
            self._end(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None)

    def _end(self, error: ProtocolError | None) -> None:
        if not self.closed.done():
            self.closed.set_result(error)
