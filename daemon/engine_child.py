"""The engine as a child process: started with one end of a socket pair, waited for, killed when it must be."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process
from pathlib import Path

from engine.config import EngineConfig


class EngineChild:
    """One process; `start` makes it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, module: str, config: EngineConfig, connection: socket.socket) -> "EngineChild":
        """Run `module` with `connection`; the caller closes its own copy of it.

        In a session of its own, so that a Ctrl-C in a terminal reaches the daemon alone.
        """
        packages = str(Path(__file__).resolve().parent.parent)  # engine/ lies beside daemon/, whatever the folder
        paths = [packages, *filter(None, [os.environ.get("PYTHONPATH")])]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module),
            *("--fd", str(connection.fileno()), "--config", config.to_json()),
            pass_fds=(connection.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    async def exits_within(self, seconds: float) -> bool:
        """Whether it ended by itself in this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def kill(self) -> None:
        """End it now, if it has not ended, and take its exit code, so that no zombie is left."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
