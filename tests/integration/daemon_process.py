"""A real daemon for tests: started as a user would, on a free port, with its own record directory.

    with DaemonProcess(tmp_path, num_kv_blocks=16) as daemon: ...   # flags as keywords
    daemon.recording                                               # the folder of its run

Leaving the block sends SIGTERM and waits for the drain; what the daemon wrote to its log is kept for failures.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
MODEL = "smollm2-135m-instruct"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def command_line(flags: dict[str, Any]) -> list[str]:
    """{"num_kv_blocks": 16, "record_content": True, "enable_prefix_caching": False} as flags."""
    words: list[str] = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if value is True:
            words.append(f"--{flag}")
        elif value is False:
            words.append(f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


class DaemonProcess:
    """`reprise serve` in a process of its own."""

    def __init__(self, directory: Path, **flags: Any) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.record_dir = directory / "recordings"
        self._log_path = directory / "daemon.log"
        options = {"port": self.port, "record_dir": self.record_dir, "record_content": True, **flags}
        self._command = [sys.executable, "-m", "daemon", "serve", *command_line(options)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "DaemonProcess":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        exit_code = self.stop()
        if kind is None:
            assert exit_code == 0, self.log
        else:
            sys.stderr.write(self.log[-8_000:])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log_path.read_text("utf-8", "replace") if self._log_path.exists() else ""

    @property
    def recording(self) -> Path:
        """The folder of the newest run; vaults' keys and resumable streams lie beside them."""
        runs = [folder for folder in self.record_dir.iterdir() if folder.name not in ("keys", "resume")]
        return max(runs, key=lambda folder: folder.stat().st_ctime_ns)

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self._process.returncode}:\n{self.log}")
            try:
                if httpx.get(f"{self.base_url}/ready", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"the daemon was not ready after {START_TIMEOUT_S} s:\n{self.log}")

    def signal(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = STOP_TIMEOUT_S) -> int:
        assert self._process is not None
        return self._process.wait(timeout)

    def stop(self) -> int:
        """SIGTERM and wait; the exit code."""
        if self._process is None or self._process.poll() is not None:
            return 0 if self._process is None else self._process.returncode
        self.signal()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the daemon did not stop:\n{self.log}") from None

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.base_url}{path}", timeout=10)

    def metrics(self) -> dict[str, float]:
        """Each metric summed over its labels, under its bare name; and under name{labels} as it stands."""
        values: dict[str, float] = {}
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                bare = name.partition("{")[0]
                values[name] = float(value)
                if bare != name:
                    values[bare] = values.get(bare, 0.0) + float(value)
        return values


def reprise(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a user types it."""
    return subprocess.run(
        [sys.executable, "-m", "daemon", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **(env or {})},
        check=False,
    )
