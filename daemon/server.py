"""The HTTP server: routes, start-up, drain. It listens at once, so that probes have an answer while the model loads."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from daemon.config import DaemonConfig
from daemon.drain import CallCounter, drain
from daemon.generation import GenerationHandler
from daemon.middleware import error_middleware, key_middleware
from daemon.probes import ProbeHandler
from daemon.run_directory import make_run_directory
from daemon.service import Service
from daemon.supervisor import EngineGaveUp
from engine.clock import Clock, SystemClock
from engine.core.errors import EngineError
from engine.text.model_source import ModelSource
from engine.text.text_model import load_text_model

CLOSE_SECONDS = 0.5  # for idle connections when the server ends

log = structlog.get_logger(__name__)


class CannotListen(EngineError):
    """The address cannot be listened on."""


async def serve(config: DaemonConfig, source: ModelSource, environment: Mapping[str, str] = os.environ) -> int:
    """Serve until a signal; returns the exit code. Raises EngineError for what an operator must change."""
    clock: Clock = SystemClock()
    signals = _Signals()
    run_directory = make_run_directory(config, environment, clock)
    service = Service(config, config.engine_config(str(run_directory or "")), source, clock)
    calls = CallCounter()
    runner = web.AppRunner(
        build_application(service, calls),
        handler_cancellation=True,  # a handler ends when its client leaves
        shutdown_timeout=CLOSE_SECONDS,
        access_log=None,  # one line per request comes from the handler, with what counts
    )
    await runner.setup()
    try:
        await _listen(runner, config, run_directory)
        log.info("recording", directory=str(run_directory) if run_directory else "none")
        return await _run(service, calls, signals, source)
    finally:
        service.close()
        await runner.cleanup()


def build_application(service: Service, calls: CallCounter) -> web.Application:
    """All routes over one service."""
    generation, probes = GenerationHandler(service), ProbeHandler(service)

    def counted(handler: Handler) -> Handler:
        async def count(request: web.Request) -> web.StreamResponse:
            with calls:
                return await handler(request)

        return count

    application = web.Application(
        client_max_size=service.config.max_body_size,
        middlewares=[error_middleware(lambda: service.is_draining), key_middleware(service.config.api_key)],
    )
    application.add_routes(
        [
            web.post("/v1/completions", counted(generation.completions)),
            web.post("/v1/chat/completions", counted(generation.chat_completions)),
            web.get("/v1/models", probes.models),
            web.get("/v1/models/{name:.+}", probes.model),
            web.get("/health", probes.health),
            web.get("/ready", probes.ready),
            web.get("/metrics", probes.metrics),
            web.get("/version", probes.version),
        ]
    )
    return application


class _Signals:
    """The first SIGTERM or SIGINT drains, the second cuts."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _listen(runner: web.AppRunner, config: DaemonConfig, run_directory: Path | None) -> None:
    try:
        await web.TCPSite(runner, config.host, config.port, reuse_address=True).start()
    except OSError as error:
        if run_directory is not None:
            run_directory.rmdir()  # still empty: no engine was started
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CannotListen(
            f"cannot listen on {config.host} port {config.port}: {reason}; choose others with --host and --port"
        ) from error
    addresses = [f"http://{address[0]}:{address[1]}" for address in runner.addresses]
    log.info("listening", addresses=addresses)


async def _run(service: Service, calls: CallCounter, signals: _Signals, source: ModelSource) -> int:
    """Until a signal has drained everything, or the engine cannot be kept alive."""
    supervising = asyncio.create_task(service.engine.supervisor.run(), name="supervisor")
    loading = asyncio.create_task(_load_text(service, source), name="tokenizer")
    waiting = asyncio.create_task(signals.first.wait(), name="signal")
    tasks: list[asyncio.Task[Any]] = [supervising, loading, waiting]
    try:
        while not (supervising.done() or waiting.done()):
            await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()  # raises what is wrong with the tokenizer
        if supervising.done():
            supervising.result()  # raises EngineGaveUp
        await drain(service, calls, signals.second)
        await supervising
        log.info("stopped")
        return 0
    except EngineGaveUp as error:
        log.error("giving up", reason=str(error))
        return 1
    finally:
        await service.engine.supervisor.stop("daemon ended", CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _load_text(service: Service, source: ModelSource) -> None:
    service.use_text_model(await asyncio.to_thread(load_text_model, source))
