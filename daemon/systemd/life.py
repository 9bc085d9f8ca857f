"""What the service manager is told over the daemon's life, and when.

    loading   EXTEND_TIMEOUT_USEC, STATUS      until the model, its self-test and the tokenizer are there
    ready     READY=1, then WATCHDOG=1         as long as `/health` says 200: a loop that waits for a step's end longer
                                               than --stall-timeout, or a daemon whose own loop hangs, feeds it no more
    reload    RELOADING=1, then READY=1
    drain     STOPPING=1, EXTEND_TIMEOUT_USEC  for as long as --drain-timeout allows, so TimeoutStopSec need not know it

There is no thread: the messages come from the loop that serves, fed by what the engine's loop has sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from daemon.health import unhealthy_reason
from daemon.service import Service
from daemon.systemd.notices import Notices

BEAT_SECONDS = 1.0  # between two looks, or a third of the watchdog's time where that is less
EXTENSION_SECONDS = 10.0  # asked for at each look
MAX_LOADING_SECONDS = 900.0  # then the unit's own TimeoutStartSec holds: a model that loads so long does not load

T = TypeVar("T")


class ServiceLife:
    """`run` beside the server; `reload` around each reload; `stopping` when a drain begins."""

    def __init__(self, notices: Notices, service: Service, address: str) -> None:
        self._notices = notices
        self._service = service
        self._address = address
        self._begun_ns = service.clock.now_ns()
        self._is_ready = False
        self._last_status = ""

    async def run(self) -> None:
        """Until it is cancelled."""
        watched = self._notices.watchdog_seconds
        while self._notices.has_listener:
            self._look()
            await asyncio.sleep(min(BEAT_SECONDS, watched / 3) if watched else BEAT_SECONDS)

    async def reload(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, and say so: a manager that asked for the reload waits for its end. Before READY it has not asked."""
        if self._is_ready:
            self._notices.reloading(self._service.clock.now_ns())
        try:
            return await work()
        finally:
            if self._is_ready:
                self._notices.ready(self._status())

    def stopping(self) -> None:
        self._notices.stopping(f"draining; {len(self._service.engine.live)} requests")

    def _look(self) -> None:
        if self._service.is_draining:
            self._notices.extend_timeout(EXTENSION_SECONDS)
        elif not self._is_ready:
            self._wait_for_the_start()
        status = self._status()
        if status != self._last_status:
            self._notices.status(status)
            self._last_status = status
        if self._is_ready and not unhealthy_reason(self._service):
            self._notices.watchdog()

    def _wait_for_the_start(self) -> None:
        if not self._service.not_ready_reason:
            self._is_ready = True
            self._last_status = self._status()
            self._notices.ready(self._last_status)
        elif (self._service.clock.now_ns() - self._begun_ns) / 1e9 < MAX_LOADING_SECONDS:
            self._notices.extend_timeout(EXTENSION_SECONDS)

    def _status(self) -> str:
        """What `systemctl status` shows in one line: state, requests, and what the recorder has lost."""
        service = self._service
        reason = unhealthy_reason(service) or service.not_ready_reason
        state = reason or f"serving {service.served_names[0]} at {self._address}"
        num_lost = service.engine.recorder.totals.num_gap_entries
        recording = "not recording" if not service.config.is_recording else f"{num_lost} entries not recorded"
        return f"{state}; {len(service.engine.live)} requests; {recording}"
