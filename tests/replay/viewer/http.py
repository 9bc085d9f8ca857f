"""A viewer on a socket of its own, and a client that asks as a browser does."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from engine.clock import SystemClock
from replay.viewer.access import Access
from replay.viewer.application import Viewer
from replay.viewer.viewed import Viewed

TOKEN = "token-of-the-tests"

Story = Callable[[aiohttp.ClientSession, Access], Awaitable[None]]


def tell(story: Story, recording: Path, folder: Path, other: Path | None = None) -> None:
    """`story` is given a session without the token, at the viewer's address."""

    async def told() -> None:
        clock = SystemClock()
        viewed = Viewed.open(recording, clock, folder)
        compared = Viewed.open(other, clock, folder) if other is not None else None
        hosts: set[str] = set()
        access = Access(TOKEN, hosts)
        runner = web.AppRunner(
            Viewer(viewed, compared, folder).application(access), access_log=None, shutdown_timeout=0.1
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            port = runner.addresses[0][1]
            hosts.add(f"127.0.0.1:{port}")
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                await story(session, access)
        finally:
            await runner.cleanup()

    asyncio.run(told())
