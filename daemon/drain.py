"""The orderly end: refuse what is new, let what runs end, cut the rest at the timeout, close the recording.

signal ──► draining: 503 for new requests ──► all ended ──────────────────► engine told to stop ──► exit
                   └── timeout or second signal ──► the rest is cancelled ──┘
"""

import asyncio

import structlog

from daemon.service import Service

POLL_SECONDS = 0.02
CUT_SECONDS = 1.5  # for the cut requests' ends to come back; a step under way may take longer
STOP_SECONDS = 2.5  # at least, for the engine to close its recording; then it is killed, streams still open are told
LAST_WRITE_SECONDS = 0.5  # for handlers to write that out

log = structlog.get_logger(__name__)


async def drain(service: Service, calls: "CallCounter", second_signal: asyncio.Event) -> None:
    """Returns when nothing runs and the engine has exited; takes at most 4.5 s more than the drain timeout."""
    service.is_draining = True
    service.engine.begin_drain()
    timeout = service.config.drain_timeout
    stop_by = asyncio.get_running_loop().time() + timeout + STOP_SECONDS
    log.info("draining", num_live_requests=len(service.engine.live), timeout_s=timeout)
    if not await _nothing_left(service, calls, timeout, second_signal):
        log.warning("cutting what is left", num_live_requests=len(service.engine.live))
        service.engine.cut_all()
        await _nothing_left(service, calls, CUT_SECONDS, None)
        stop_by = 0.0
    seconds_left = max(STOP_SECONDS, stop_by - asyncio.get_running_loop().time())
    await service.engine.supervisor.stop("drained", seconds_left)
    await _nothing_left(service, calls, LAST_WRITE_SECONDS, None)


class CallCounter:
    """Calls whose handlers have not written their last byte yet."""

    def __init__(self) -> None:
        self.num_open = 0

    def __enter__(self) -> "CallCounter":
        self.num_open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.num_open -= 1


async def _nothing_left(
    service: Service, calls: CallCounter, timeout_seconds: float, cut_now: asyncio.Event | None
) -> bool:
    try:
        async with asyncio.timeout(timeout_seconds):
            while len(service.engine.live) or calls.num_open:
                if cut_now is not None and cut_now.is_set():
                    return False
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False
    return True
