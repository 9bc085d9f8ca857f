"""The process that answers for `/viewer`: started with the first page, ended when nobody has asked for a while.

It reads the recording that the engine writes, at a low priority, in a memory and an interpreter of its own: neither
streams nor steps wait for what a page asks. It dies with the daemon, for its stdin ends.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from daemon.errors import unavailable

MODULE = "replay.viewer.serving"
START_S = 30.0
IDLE_S = 600.0
_RETRY_S = 2

log = structlog.get_logger(__name__)


class ViewerChild:
    """`async with child.socket(recording) as path:` while something is asked of it."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._recording = ""
        self._folder: Path | None = None  # 0700, of the socket
        self._num_users = 0
        self._ending: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def socket(self, recording: str) -> AsyncIterator[Path]:
        """The path of its socket; a process that died is started again. Raises ApiError 503 when it does not start."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._num_users += 1
        try:
            yield await self._started(recording)
        finally:
            self._num_users -= 1
            if self._num_users == 0:
                self._ending = asyncio.get_running_loop().call_later(self._idle_s, self._end_soon)

    async def stop(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        async with self._lock:
            await self._end()

    async def _started(self, recording: str) -> Path:
        async with self._lock:
            is_running = self._process is not None and self._process.returncode is None
            if not is_running or self._recording != recording:
                await self._end()
                await self._start(recording)
            assert self._folder is not None, "it was made before the process"
            return self._folder / "socket"

    async def _start(self, recording: str) -> None:
        self._folder, self._recording = Path(tempfile.mkdtemp(prefix="reprise-viewer-")), recording
        packages = str(Path(__file__).resolve().parent.parent)
        paths = [packages, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", MODULE, recording, str(self._folder / "socket")),
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self._process.stdout is not None, "it is a pipe"
        try:
            async with asyncio.timeout(START_S):
                said = await self._process.stdout.readline()
        except TimeoutError:
            said = b""
        if not said:
            await self._end()
            raise unavailable("the viewer did not start: the log says why", "viewer_not_ready", _RETRY_S)
        log.info("viewer started", pid=self._process.pid, recording=recording)

    def _end_soon(self) -> None:
        task = asyncio.ensure_future(self._end_if_idle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_if_idle(self) -> None:
        async with self._lock:
            if self._num_users == 0:
                await self._end()
                log.info("viewer ended", reason="nobody has asked for a while")

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(5):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, True)
