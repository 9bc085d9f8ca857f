"""A real server on a real socket over a real engine process with the runner without weights, inside the test's loop.

Tokens are those of the byte-level text model as far as they have text; the scripted runner draws ids below 1,000, so
its vocabulary is filled up with words.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from daemon.application import build_application
from daemon.config import DaemonConfig
from daemon.drain import CallCounter, drain
from daemon.malformed_http import ApiRunner
from daemon.service import Service
from daemon.telemetry.open_telemetry import start_open_telemetry
from engine.clock import SystemClock
from engine.text.model_source import ModelSource
from tests.daemon.text_models import word_text_model

MODEL = "scripted"


@dataclass
class Served:
    """A running server, the client's session to it, and the parts that tests look into."""

    base_url: str
    session: aiohttp.ClientSession
    service: Service
    calls: CallCounter
    supervising: "asyncio.Task[None]"
    second_signal: asyncio.Event

    async def post(self, path: str, body: dict[str, Any], **options: Any) -> tuple[int, dict[str, Any]]:
        async with self.session.post(path, json=body, **options) as response:
            answer: dict[str, Any] = await response.json()
            return response.status, answer

    async def complete(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        return await self.post("/v1/completions", completion(**fields))

    async def events(self, path: str, body: dict[str, Any]) -> list[str]:
        """The data lines of a stream, as they stand."""
        async with self.session.post(path, json={**body, "stream": True}) as response:
            assert response.status == 200, await response.text()
            text = (await response.read()).decode("utf-8")
        return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]

    async def drained(self) -> None:
        await drain(self.service, self.calls, self.second_signal)
        await self.supervising

    async def until(self, happens: "Any", seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not happens():
                await asyncio.sleep(0.01)


def completion(**fields: Any) -> dict[str, Any]:
    return {"prompt": [1, 2, 3], "max_tokens": 8, "ignore_eos": True, "seed": 7, **fields}


@asynccontextmanager
async def serving(record_dir: Path | None = None, **options: Any) -> AsyncIterator[Served]:
    """A server that is ready; `options` as in DaemonConfig."""
    config = DaemonConfig(**{"max_model_len": 512, "drain_timeout": 5.0, **options})
    source = ModelSource(MODEL, Path("/nonexistent"), "gguf", "")
    engine_config = config.engine_config(str(record_dir or ""))
    service = Service(config, engine_config, source, SystemClock(), "tests.daemon.scripted_engine")
    service.use_text_model(word_text_model())
    sending = start_open_telemetry(service, record_dir.name if record_dir else "", {})
    calls = CallCounter()
    runner = ApiRunner(build_application(service, calls), handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    supervising = asyncio.create_task(service.engine.supervisor.run())
    try:
        async with asyncio.timeout(30):
            await service.engine.supervisor.became_ready.wait()
        base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        headers = {"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}
        async with aiohttp.ClientSession(base_url, connector=connector, headers=headers) as session:
            yield Served(base_url, session, service, calls, supervising, asyncio.Event())
    finally:
        await service.engine.supervisor.stop("test ended", 5.0)
        await asyncio.gather(supervising, return_exceptions=True)
        if sending is not None:
            await sending.close()
        service.close()
        await runner.cleanup()
