"""Starts the engine process, watches it, and starts another when it dies. It never leaves one behind.

The child gets one end of a socket pair; when this process goes, however it goes, the child reads the end of the socket
and exits. A first engine that says why it cannot start is not tried again: its reason will not pass by itself. An
engine that dies later is replaced: at once, or, when it died quickly and was of no use, after a growing pause, until
that has happened MAX_QUICK_DEATHS times in a row and no request explains it.
It must not know requests: who holds them is told by `on_death`, and tells the next engine what it must know.
"""

import asyncio
import signal
import socket
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import structlog

from daemon.engine_child import EngineChild
from daemon.engine_connection import EngineConnection
from daemon.handover import Aftermath
from engine.clock import Clock
from engine.config import EngineConfig
from engine.core.errors import EngineError
from engine.protocol import Failed, Message, Ready, Stop

ENGINE_MODULE = "engine.process"
MAX_QUICK_DEATHS = 3
QUICK_DEATH_NS = 10_000_000_000  # an engine that was ready for less has died quickly
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 8.0
EXPLAINED_PAUSE_SECONDS = 1.0  # while requests are told apart: their clients wait
LAST_WORDS_SECONDS = 1.0  # between the end of the process and the end of what it had sent
EXIT_SECONDS = 3.0  # between the end of the socket and the end of the process, before it is killed

log = structlog.get_logger(__name__)


class EngineGaveUp(EngineError):
    """The engine cannot be started, or dies again and again: the daemon has nothing left to serve with."""


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    FAILED = "failed"


class Supervisor:
    """`run` keeps one engine alive until `stop`; raises EngineGaveUp when that cannot be done.

    on_message   every message of the engine but Failed
    on_death     called once per engine that is gone, with whether SIGKILL ended it; what its end says
    on_end       called when no engine will follow
    engine_module  run with `python -m`; speaks engine/protocol.py on the socket it is given
    started      an engine process runs, or cannot be started
    info         what the engine said when it became ready; {} before
    """

    def __init__(
        self,
        config: EngineConfig,
        clock: Clock,
        on_message: Callable[[Message], None],
        on_death: Callable[[bool], Aftermath],
        on_end: Callable[[], None],
        engine_module: str = ENGINE_MODULE,
    ) -> None:
        self._engine_module = engine_module
        self._config = config
        self._clock = clock
        self._on_message = on_message
        self._on_death = on_death
        self._on_end = on_end
        self._aftermath = Aftermath(False, False)
        self._connection: EngineConnection | None = None
        self._child: EngineChild | None = None
        self._ready_ns: int | None = None
        self._death_ns = 0
        self._load_seconds = 0.0
        self._failure = ""
        self._stop_requested = asyncio.Event()
        self.started = asyncio.Event()
        self.became_ready = asyncio.Event()
        self.state = EngineState.STARTING
        self.num_restarts = 0
        self.info: dict[str, Any] = {}

    @property
    def connection(self) -> EngineConnection | None:
        """To the engine, when it is there and ready."""
        return self._connection if self.state in (EngineState.READY, EngineState.STOPPING) else None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def retry_after_seconds(self) -> int:
        """How long the model took to load the last time: when an engine under restart should be back."""
        return max(2, round(self._load_seconds) + 1)

    async def run(self) -> None:
        try:
            await self._keep_alive()
        finally:
            self._on_end()

    async def _keep_alive(self) -> None:
        num_quick_deaths = 0
        while True:
            await self._live_once()
            if self._stop_requested.is_set():
                return
            num_quick_deaths = num_quick_deaths + 1 if self._died_quickly() else 0
            if self._is_hopeless(num_quick_deaths):
                self.state = EngineState.FAILED
                raise EngineGaveUp(self._failure or f"the engine died {num_quick_deaths} times in a row")
            self.num_restarts += 1
            await self._pause(num_quick_deaths)
            if self._stop_requested.is_set():
                return

    async def stop(self, cause: str, timeout_seconds: float) -> None:
        """Tell the engine to close its recording and exit; kill it when it has not within the time.

        One that is still loading is killed at once: nothing is recorded yet.
        """
        is_loading = self.state is not EngineState.READY
        self.state = EngineState.STOPPING
        self._stop_requested.set()
        child = self._child
        if child is None or child.exit_code is not None:
            return
        if self._connection is not None:
            self._connection.send(Stop(cause))
        if not await child.exits_within(0 if is_loading else timeout_seconds) and not is_loading:
            log.warning("the engine did not stop in time and is killed", timeout_s=timeout_seconds)
        await child.kill()

    # ── one engine's life ────────────────────────────────────────────────────────────────────────────────────────

    async def _live_once(self) -> None:
        started_ns = self._clock.now_ns()
        self._ready_ns, self._failure = None, ""
        ours, theirs = socket.socketpair()
        try:
            child = self._child = await EngineChild.start(self._engine_module, self._config, theirs)
        except OSError as error:
            ours.close()
            raise EngineGaveUp(f"the engine process cannot be started: {error}") from error
        finally:
            theirs.close()
            self.started.set()
        log.info("engine started", pid=child.pid, model=self._config.model)
        try:
            _transport, self._connection = await asyncio.get_running_loop().create_unix_connection(
                lambda: EngineConnection(lambda message: self._take(message, started_ns)), sock=ours
            )
            await self._until_gone(child, self._connection)
            await child.exits_within(EXIT_SECONDS)
            self._end_life(child.exit_code == -signal.SIGKILL)
        finally:
            if self._connection is not None:
                self._connection.close()
            await child.exits_within(EXIT_SECONDS)
            await child.kill()
            if not self._stop_requested.is_set():
                log.error("engine died", pid=child.pid, exit_code=child.exit_code, reason=self._failure or None)

    async def _until_gone(self, child: EngineChild, connection: EngineConnection) -> None:
        """Until the socket is closed; of a process that has ended, what it said last is still read."""
        exiting: asyncio.Future[Any] = asyncio.ensure_future(child.wait())
        closed: asyncio.Future[Any] = connection.closed
        try:
            await asyncio.wait([exiting, closed], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([closed], timeout=LAST_WORDS_SECONDS)
        finally:
            exiting.cancel()
        if closed.done() and (error := closed.result()):
            log.error("the engine sent what cannot be read", error=str(error))

    def _end_life(self, was_killed: bool) -> None:
        self._death_ns = self._clock.now_ns()
        if not self._stop_requested.is_set():
            self.state = EngineState.RESTARTING
        self._aftermath = self._on_death(was_killed)

    def _take(self, message: Message, started_ns: int) -> None:
        if isinstance(message, Ready):
            self._ready_ns = self._clock.now_ns()
            self._load_seconds = (self._ready_ns - started_ns) / 1e9
            self.info = message.info
            if self.state is not EngineState.STOPPING:
                self.state = EngineState.READY
            self.became_ready.set()
            log.info("engine ready", seconds=round(self._load_seconds, 2), **_shown(message.info))
        if isinstance(message, Failed):
            self._failure = message.message
        else:
            self._on_message(message)

    def _died_quickly(self) -> bool:
        """It did not live long, and gave nobody a token meanwhile."""
        is_young = self._ready_ns is None or self._death_ns - self._ready_ns < QUICK_DEATH_NS
        return is_young and not self._aftermath.was_of_use

    def _is_hopeless(self, num_quick_deaths: int) -> bool:
        was_told_why = bool(self._failure) and not self.became_ready.is_set()
        return was_told_why or (num_quick_deaths >= MAX_QUICK_DEATHS and not self._aftermath.is_explained)

    async def _pause(self, num_quick_deaths: int) -> None:
        if num_quick_deaths == 0:
            return
        longest = EXPLAINED_PAUSE_SECONDS if self._aftermath.is_explained else MAX_PAUSE_SECONDS
        seconds = min(FIRST_PAUSE_SECONDS * 2 ** (num_quick_deaths - 1), longest)
        try:
            async with asyncio.timeout(seconds):
                await self._stop_requested.wait()
        except TimeoutError:
            return


def _shown(info: dict[str, Any]) -> dict[str, Any]:
    """The parts of the engine's information that fit on a line of the log."""
    return {key: value for key, value in info.items() if isinstance(value, (str, int, float)) and value != ""}
