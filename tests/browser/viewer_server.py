"""The viewer over a recording on a free port of this machine, in a thread of its own: what `reprise view` serves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from engine.clock import SystemClock
from replay.viewer.application import Viewer
from replay.viewer.viewed import Viewed


@contextmanager
def viewing(
    recording: Path, other: Path | None = None, index_folder: Path | None = None, port: int = 0
) -> Iterator[str]:
    """The page's address, without a token; `port`: 0 takes a free one."""
    clock = SystemClock()
    opened = threading.Event()
    addresses: list[str] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        viewer = Viewer(
            Viewed.open(recording, clock, index_folder),
            Viewed.open(other, clock, index_folder) if other is not None else None,
            index_folder,
        )
        runner = web.AppRunner(viewer.application(None), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
            await site.start()
            addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}/")
            opened.set()
            await stop.wait()
        finally:
            await runner.cleanup()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        finally:
            opened.set()
            loop.close()

    thread = threading.Thread(target=run, name="viewer")
    thread.start()
    try:
        opened.wait()
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
