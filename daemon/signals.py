"""Signals of a daemon: the first SIGTERM or SIGINT drains, the second cuts; SIGHUP reloads. It must not know how."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

Work = Callable[[], Awaitable[object]]


class Signals:
    """Made on the running loop; from then on no signal of these ends the process.

    first, second   set by the signals that ask for the end
    on_hangup       done once per SIGHUP, one after the other; those that come meanwhile count as one more
    """

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        self.on_hangup: Work | None = None
        self._is_asked_again = False
        self._reloading: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask_for_the_end)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _ask_for_the_end(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    def _hang_up(self) -> None:
        self._is_asked_again = True  # what is being read now may have been read before the last change
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload(), name="reload")

    async def _reload(self) -> None:
        while self._is_asked_again and self.on_hangup is not None:
            self._is_asked_again = False
            await self.on_hangup()
