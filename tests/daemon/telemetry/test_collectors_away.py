"""A collector that is away, hangs or refuses costs spans, which are counted, and nothing else."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiohttp import web

from daemon.telemetry import open_telemetry
from tests.daemon.served import serving


@asynccontextmanager
async def nobody_listens() -> AsyncIterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@asynccontextmanager
async def accepts_and_hangs() -> AsyncIterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@asynccontextmanager
async def refuses() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=400)

    application = web.Application()
    application.add_routes([web.post("/v1/traces", answer)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("collector", [nobody_listens, accepts_and_hangs, refuses])
def test_requests_are_answered_all_the_same(
    collector: Callable[[], AbstractAsyncContextManager[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "12")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setattr(open_telemetry, "CLOSE_SECONDS", 0.2)

    async def run() -> None:
        async with collector() as url, serving(otlp_traces_endpoint=url) as served:
            for _ in range(8):
                answers = await asyncio.gather(*[served.complete(max_tokens=2) for _ in range(4)])
                assert [status for status, _answer in answers] == [200] * 4
            sent = served.service.spans_sent
            async with served.session.get("/metrics") as response:
                page = await response.text()
            assert 'reprise:trace_spans_total{engine="0",fate="dropped"' in page
        assert sent.num_exported == 0
        assert sent.num_dropped + sent.num_failed + sent.num_waiting == 32 * 4  # each: itself, queued, prefill, decode
        assert sent.num_waiting <= 12
        if collector is accepts_and_hangs:
            assert sent.num_dropped, "more than the queue holds were ended while nothing could be sent"

    asyncio.run(run())
    for thread in threading.enumerate():
        if thread.name == "spans' end":  # what it still logs is not for the next test's eyes
            thread.join(30)


def test_the_sdk_is_not_imported_unless_it_is_asked_for() -> None:
    code = (
        "import sys, daemon.server, daemon.application, daemon.__main__\n"
        "import daemon.telemetry.open_telemetry\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
