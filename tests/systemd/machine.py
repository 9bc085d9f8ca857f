"""A booted Debian whose process 1 is systemd: commands run in it as its root, with a network of its own.

with Machine(folder) as machine: machine.run("systemctl", "is-system-running")
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.systemd.debian import LIBRARIES, MODELS, PYTHON, SOURCE

BOOT_SECONDS, COMMAND_SECONDS, STOP_SECONDS = 60.0, 120.0, 30.0
BOOTED = ("running", "degraded")
REPOSITORY = Path(__file__).parents[2]


class Machine:
    """Nothing that is done in it stays in the folder: it is booted on a layer that is thrown away."""

    def __init__(self, folder: Path, models: Path, log: Path) -> None:
        self._log = log
        (site_packages,) = (Path(sys.prefix) / "lib").glob("python3.*/site-packages")
        mounts = {REPOSITORY: SOURCE, site_packages: LIBRARIES, Path(sys.base_prefix): PYTHON, models: MODELS}
        self._command = [
            "systemd-nspawn",
            f"--directory={folder}",
            "--volatile=overlay",
            "--boot",
            "--register=no",
            "--keep-unit",
            "--private-network",
            f"--machine=reprise-{os.getpid()}",
            "--console=pipe",
            "--kill-signal=SIGRTMIN+3",
            *[f"--bind-ro={source}:{target}" for source, target in mounts.items()],
        ]

    def __enter__(self) -> "Machine":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},  # all that newer ones boot on
            )
        until = time.monotonic() + BOOT_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            self._leader = _child_of(self._process.pid)
            if self._leader and self.try_run("systemctl", "is-system-running").stdout.strip() in BOOTED:
                self.run("ldconfig")  # for the library of the Python that is mounted
                return self
            time.sleep(0.2)
        self._stop()
        raise AssertionError(f"it did not boot: {self._log.read_text(errors='replace')[-4_000:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            sys.stderr.write(self.try_run("journalctl", "--no-pager", "-n", "80").stdout)
        self._stop()

    def run(self, *command: str, **options: str) -> str:
        """What it prints. Raises AssertionError where it fails."""
        done = self.try_run(*command, **options)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def try_run(self, *command: str, **options: str) -> "subprocess.CompletedProcess[str]":
        """`options`: input for its standard input."""
        return subprocess.run(
            [*self._inside(), *command],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            env=_ENVIRONMENT,
            input=options.get("input"),
        )

    def start(self, *command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self._inside(), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_ENVIRONMENT
        )

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path, input=text)

    def properties(self, unit: str, *names: str) -> dict[str, str]:
        """As `systemctl show` has them."""
        lines = self.run("systemctl", "show", unit, *[f"--property={name}" for name in names]).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def _inside(self) -> list[str]:
        return ["nsenter", f"--target={self._leader}", "--all", "--wd=/"]

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_ENVIRONMENT: Mapping[str, str] = {"PATH": "/opt/reprise/bin:/usr/bin:/usr/sbin:/bin:/sbin", "LC_ALL": "C.UTF-8"}


def _child_of(pid: int) -> int:
    """Its process 1, as it is numbered here; 0 while there is none."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    told = children.read_text().split() if children.exists() else []
    return int(told[0]) if told else 0
