"""The served daemon with the runner without weights, in a process of its own: so that its memory, its descriptors and
the lag of its event loop are its own.

    with ScriptedDaemon(folder, max_num_seqs=64) as daemon: ...    # options of DaemonConfig as keywords
    daemon.told                                                     # what it says of itself once it has ended
"""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import uvloop

from daemon.application import listen
from daemon.connections import raise_descriptor_limit
from daemon.garbage import collect_at_quiet_times
from daemon.logging import set_up_logging
from tests.daemon.served import serving

START_SECONDS, STOP_SECONDS = 60.0, 60.0
LAG_PROBE_SECONDS = 0.005
FEW_KERNEL_BYTES = 8192  # of unread answers; else megabytes lie in the kernel and no reader is slow


class ScriptedDaemon:
    """
    pid, engine_pid   of the two processes
    told              "lag_ms": percentiles of the event loop's lag; "work_ms": of its own CPU time from one look at the
                      lag to the next, which others on the machine do not lengthen; "num_live", "num_open_calls"
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        max_descriptors: int = 0,
        **options: Any,
    ) -> None:
        """`max_descriptors`: the soft limit that the process is started with; 0: as it is here."""
        self._folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self._max_descriptors = max_descriptors
        self._options = options
        self.told: dict[str, Any] = {}

    def __enter__(self) -> "ScriptedDaemon":
        self.log_path = self._folder / "daemon.log"
        command = [sys.executable, "-m", "tests.daemon.scripted_process", str(self._folder), json.dumps(self._options)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                text=True,
                preexec_fn=self._limit_descriptors if self._max_descriptors else None,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log_path.read_text()[-8_000:]
        begun = json.loads(line)
        self.pid, self.engine_pid, self.port = self._process.pid, begun["engine_pid"], begun["port"]
        self.base_url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            output, _ = self._process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        if kind is not None:
            sys.stderr.write(self.log_path.read_text("utf-8", "replace")[-8_000:])
            return
        assert self._process.returncode == 0, self.log_path.read_text("utf-8", "replace")[-8_000:]
        self.told = json.loads(output)

    def health(self) -> dict[str, Any]:
        body: dict[str, Any] = httpx.get(f"{self.base_url}/health", timeout=30).json()
        return body

    def until_idle(self, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while self.health()["num_live_requests"]:
            assert time.monotonic() < until, "requests are still live"
            time.sleep(0.05)

    def num_descriptors(self) -> tuple[int, int]:
        """Of the daemon and its engine."""
        return _num_descriptors(self.pid), _num_descriptors(self.engine_pid)

    def resident_bytes(self) -> tuple[int, int]:
        """Of the daemon and its engine."""
        return _resident_bytes(self.pid), _resident_bytes(self.engine_pid)

    def _limit_descriptors(self) -> None:
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._max_descriptors, hard))


def _num_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _serve(folder: Path, options: dict[str, Any]) -> None:
    raise_descriptor_limit()  # as `server.py` does
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with serving(folder / "run", **options) as served:
        address = socket.create_server(("127.0.0.1", 0), backlog=1024)
        address.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FEW_KERNEL_BYTES)
        address.setblocking(False)
        runner = await listen(served.service, served.calls, [address])
        engine = served.service.engine.supervisor
        print(json.dumps({"port": runner.addresses[0][1], "engine_pid": engine.pid}), flush=True)
        lags: list[float] = []
        works: list[float] = []
        tasks = [asyncio.create_task(_probe_lag(lags, works))]
        tasks.append(asyncio.create_task(collect_at_quiet_times(lambda: len(served.service.engine.live) > 0)))
        await ended.wait()
        for task in tasks:
            task.cancel()
        state = {
            "lag_ms": _percentiles(lags),
            "work_ms": _percentiles(works),
            "num_live": len(served.service.engine.live),
            "num_open_calls": served.calls.num_open,
        }
        await runner.cleanup()
    print(json.dumps(state), flush=True)


async def _probe_lag(lags: list[float], works: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due, before = loop.time() + LAG_PROBE_SECONDS, time.thread_time()
        await asyncio.sleep(LAG_PROBE_SECONDS)
        lags.append(max(0.0, loop.time() - due))
        works.append(time.thread_time() - before)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    places = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: round(1000 * ordered[round((len(ordered) - 1) * share)], 1) for name, share in places.items()}


if __name__ == "__main__":
    set_up_logging("info", sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as running:
        running.run(_serve(Path(sys.argv[1]), json.loads(sys.argv[2])))
