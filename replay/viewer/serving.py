"""The viewer's server: on this machine's own address for `reprise view`, or on a socket that a daemon hands on from.

`python -m replay.viewer.serving REC SOCKET` is what a daemon starts, in a process of its own at a low priority: reading
tiles takes the interpreter's lock for tens of milliseconds, which no stream of tokens shall wait for. It ends when its
stdin does, so that it never outlives the daemon.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from engine.clock import SystemClock
from replay.viewer.access import Access
from replay.viewer.application import Viewer
from replay.viewer.viewed import Viewed

ADDRESS = "127.0.0.1"
NICENESS = 5
_SHUTDOWN_S = 0.5


async def serve_here(viewer: Viewer, port: int, announce: Callable[[str], None]) -> None:
    """Until cancelled; `announce` is given the URL with a fresh token. Raises OSError where the port is taken."""
    runner: web.AppRunner | None = None
    listening = _listening_socket(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    hosts = {f"{name}:{port}" for name in (ADDRESS, "localhost")}
    access = Access(token, hosts, cookie_suffix=f"_{port}")
    try:
        runner = web.AppRunner(viewer.application(access), shutdown_timeout=_SHUTDOWN_S, access_log=None)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        announce(f"http://{ADDRESS}:{port}/?token={token}")
        await asyncio.Event().wait()
    finally:
        if runner is not None:
            await runner.cleanup()
        listening.close()


def _listening_socket(port: int) -> socket.socket:
    found = socket.create_server((ADDRESS, port), backlog=64)
    found.setblocking(False)
    return found


async def serve_socket(recording: Path, path: Path) -> None:
    """On a Unix socket, without a token: whoever can open it has been let in. Until stdin ends."""
    viewer = Viewer(Viewed.open(recording, SystemClock()))
    runner = web.AppRunner(viewer.application(None), shutdown_timeout=_SHUTDOWN_S, access_log=None)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(path)).start()
        path.chmod(0o600)
        print("listening", flush=True)
        await _end_of_stdin()
    finally:
        await runner.cleanup()


async def _end_of_stdin() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(1_024):
            pass
    finally:
        transport.close()


def main(arguments: list[str]) -> int:
    os.nice(NICENESS)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_socket(Path(arguments[0]), Path(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
