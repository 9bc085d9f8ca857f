"""A daemon's life: start, serve, drain. The engine starts first, for it takes longest; HTTP is loaded meanwhile.

Once that is loaded it listens, so that probes have an answer while the model loads.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from socket import socket
from types import ModuleType
from typing import TYPE_CHECKING, Any

import structlog

from daemon.config import DaemonConfig
from daemon.config_sources import Configured
from daemon.connections import raise_descriptor_limit
from daemon.drain import CallCounter, drain
from daemon.garbage import collect_at_quiet_times
from daemon.reload import reload
from daemon.resume_journal import open_journal
from daemon.run_directory import make_run_directory, resume_directory
from daemon.running import RunningDaemon
from daemon.service import Service
from daemon.signals import Signals
from daemon.supervisor import EngineGaveUp
from daemon.systemd.life import ServiceLife
from daemon.systemd.notices import Notices
from daemon.systemd.sockets import take_sockets
from daemon.telemetry.open_telemetry import start_open_telemetry
from engine.clock import Clock, SystemClock
from engine.core.errors import EngineError
from engine.text.model_source import ModelSource
from engine.text.template_file import read_chat_template
from engine.text.text_model import load_text_model

if TYPE_CHECKING:
    from aiohttp import web

STOP_SECONDS = 0.5  # for an engine that is not drained any more

log = structlog.get_logger(__name__)


class CannotListen(EngineError):
    """The address cannot be listened on."""


async def serve(
    configured: Configured,
    source: ModelSource,
    read_again: Callable[[], Configured],
    environment: MutableMapping[str, str] = os.environ,
) -> int:
    """Serve until a signal; returns the exit code. Raises EngineError for what an operator must change.

    read_again    the options as they stand now, for SIGHUP
    environment   what a service manager has put into it for this process alone is taken out
    """
    raise_descriptor_limit()
    clock: Clock = SystemClock()
    config = configured.config
    signals = Signals()
    notices, inherited = Notices.taken_from(environment), take_sockets(environment)
    chat_template = read_chat_template(config.chat_template)
    run_directory = make_run_directory(config, environment, clock)
    engine_config = config.engine_config(str(run_directory or ""))
    if chat_template:
        digest = hashlib.sha256(chat_template.encode()).hexdigest()
        engine_config = replace(engine_config, chat_template_sha256=digest)
    service = Service(config, engine_config, source, clock)
    service.configured = configured
    sending = start_open_telemetry(service, run_directory.name if run_directory else "", environment)
    _take_over_streams(service, config, environment)
    signals.on_hangup = lambda: reload(service, read_again)
    supervising = asyncio.create_task(service.engine.supervisor.run(), name="supervisor")
    try:
        await service.engine.supervisor.started.wait()
        calls = CallCounter()
        runner = await _listen(service, calls, run_directory, inherited)
        address = "{}:{}".format(*runner.addresses[0][:2])
        life, running = ServiceLife(notices, service, address), RunningDaemon.announce(environment, address)
        signals.on_hangup = lambda: _reload(service, read_again, life, running)
        telling = asyncio.create_task(life.run(), name="notices")
        try:
            log.info("recording", directory=str(run_directory) if run_directory else "none")
            loading = _load_text(service, source, chat_template)
            return await _run(service, calls, signals, loading, supervising, life)
        finally:
            telling.cancel()
            if running is not None:
                running.close()
            await runner.cleanup()
    finally:
        await service.engine.supervisor.stop("daemon ended", STOP_SECONDS)
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)
        if sending is not None:
            await sending.close()
        await service.resumables.close()
        service.close()
        notices.close()


async def _reload(
    service: Service, read_again: Callable[[], Configured], life: ServiceLife, running: RunningDaemon | None
) -> None:
    """Whoever asked for it, by whatever way, is told what came of it."""
    outcome = await life.reload(lambda: reload(service, read_again))
    if running is not None:
        running.note_reload(asdict(outcome))


def _take_over_streams(service: Service, config: DaemonConfig, environment: Mapping[str, str]) -> None:
    """Go on with the resumable streams of a daemon that served this address before; keep a journal of those to come."""
    if not config.max_resume_s:
        return
    directory = resume_directory(config, environment)
    if directory.exists():
        journal = open_journal(directory, environment)
        if journal is not None:
            num_streams = service.resumables.restore(journal)
            log.info("streams taken over", num_streams=num_streams)
    else:
        service.resumables.open_journal = lambda: open_journal(directory, environment)


async def _listen(
    service: Service, calls: CallCounter, run_directory: Path | None, inherited: Sequence[socket]
) -> "web.AppRunner":
    application = await asyncio.to_thread(_load_http)
    host, port = service.config.host, service.config.port
    try:
        runner: web.AppRunner = await application.listen(service, calls, inherited)
    except OSError as error:
        await service.engine.supervisor.stop("cannot listen", 0)
        if run_directory is not None:
            with contextlib.suppress(OSError):  # the engine may have begun its recording
                run_directory.rmdir()
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CannotListen(
            f"cannot listen on {host} port {port}: {reason}; choose others with --host and --port"
        ) from error
    log.info(
        "listening",
        addresses=[f"{'https' if service.tls else 'http'}://{address[0]}:{address[1]}" for address in runner.addresses],
    )
    return runner


def _load_http() -> ModuleType:
    from daemon import application

    return application


async def _run(
    service: Service,
    calls: CallCounter,
    signals: Signals,
    load_text: Coroutine[Any, Any, None],
    supervising: "asyncio.Task[None]",
    life: ServiceLife,
) -> int:
    """Until a signal has drained everything, or the engine cannot be kept alive."""
    loading = asyncio.create_task(load_text, name="tokenizer")
    waiting = asyncio.create_task(signals.first.wait(), name="signal")
    tasks: list[asyncio.Task[Any]] = [supervising, loading, waiting]
    tidying: asyncio.Task[None] | None = None
    try:
        while not (supervising.done() or waiting.done()):
            await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()  # raises what is wrong with the tokenizer
                tidying = tidying or asyncio.create_task(collect_at_quiet_times(lambda: len(service.engine.live) > 0))
        if supervising.done():
            supervising.result()  # raises EngineGaveUp
        life.stopping()
        await drain(service, calls, signals.second)
        await supervising
        log.info("stopped")
        return 0
    except EngineGaveUp as error:
        log.error("giving up", reason=str(error))
        return 1
    finally:
        await service.engine.supervisor.stop("daemon ended", STOP_SECONDS)
        for task in (loading, waiting, *([tidying] if tidying else [])):
            task.cancel()
        await asyncio.gather(loading, waiting, return_exceptions=True)


async def _load_text(service: Service, source: ModelSource, chat_template: str) -> None:
    service.use_text_model(await asyncio.to_thread(load_text_model, source, chat_template=chat_template))
