"""Keeps what is looked at up to date: an indexing process beside, arrays read as it gets on, and whoever listens told.

It must not know HTTP.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from replay.viewer.viewed import Viewed

LOOK_EVERY_S = 0.25  # listeners hear four times a second at most
MAX_LISTENERS = 64


class Following:
    """`start`, then `listen` as often as wanted, `stop`. In one event loop."""

    def __init__(self, viewed: Viewed, folder: Path | None = None, beside: "Following | None" = None) -> None:
        """
        folder   where the index is kept, as `viewed` was told
        beside   whose listeners hear what happens here, too
        """
        self._beside = beside
        self._viewed = viewed
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: set[asyncio.Queue[tuple[str, dict[str, Any]]]] = set()

    async def start(self) -> None:
        arguments = [str(self._viewed.path), *([str(self._folder)] if self._folder else [])]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "replay.viewer.indexing", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._tasks = [
            asyncio.create_task(self._read_status(self._process), name="index status"),
            asyncio.create_task(self._look(), name="index growth"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()

    async def listen(self) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """(name, data) of each event, until the caller leaves. Who does not read in time misses what came meanwhile."""
        queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(16)
        self._listeners.add(queue)
        try:
            if self._viewed.state.state != "building":
                yield "ready", self._status()
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= MAX_LISTENERS

    async def _read_status(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        state = self._viewed.state
        while line := await process.stdout.readline():
            said = json.loads(line)
            before = state.state
            state.state, state.error = said["state"], said.get("error", "")
            state.num_entries += said.get("num_entries", 0)
            state.fraction = said.get("fraction", state.fraction)
            if before != state.state:
                await asyncio.to_thread(self._viewed.refresh)
                if state.state == "ready":
                    await asyncio.to_thread(self._viewed.keep)
                self._tell("ready" if state.state != "failed" else "failed", self._status())
        if state.state != "failed":
            state.state, state.error = "failed", "the indexing process ended: the server's log says why"
            self._tell("failed", self._status())

    async def _look(self) -> None:
        """Where nothing has been committed a look costs one small read."""
        version: Any = None
        while True:
            seen = await asyncio.to_thread(self._version)
            if seen != version:
                version = seen
                for growth in await asyncio.to_thread(self._viewed.refresh):
                    self._tell("grown", {"generation": self._viewed.generation, **asdict(growth)})
            await asyncio.sleep(LOOK_EVERY_S)

    def _version(self) -> Any:
        with contextlib.suppress(Exception), self._viewed.database() as database:  # not begun, or begun anew
            return database.execute("SELECT value FROM meta WHERE key = 'resume'").fetchone()[0]
        return None

    def _status(self) -> dict[str, Any]:
        return {"generation": self._viewed.generation, **asdict(self._viewed.state)}

    def _tell(self, name: str, data: dict[str, Any]) -> None:
        if self._beside is not None:
            self._beside._tell(name, data)
        for queue in self._listeners:
            if not queue.full():
                queue.put_nowait((name, data))
