"""As much of systemd as the protocol needs, for a daemon started under it: a notify socket, a listening socket handed
over, and, where the libraries are there, the unit's system call filter and W^X.

    with Manager(tmp_path, watchdog_seconds=0.3, stall_timeout=1) as manager: manager.wait_for("READY=1")
"""

import ctypes
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from daemon.systemd.install import FOLDER
from tests.integration.daemon_process import command_line

WAIT_SECONDS = 60.0
# executed before the daemon, in its process: descriptor 3 is the socket, and what is forbidden is forbidden
PRELUDE = """
import ctypes, os, sys
descriptor, denied, python, *rest = sys.argv[1:]
if int(descriptor) != 3:
    os.dup2(int(descriptor), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE: MemoryDenyWriteExecute= as newer kernels have it
if denied:
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    filter = ctypes.c_void_p(seccomp.seccomp_init(0x7FFF0000))
    for name in denied.split(","):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert seccomp.seccomp_rule_add(filter, 0x00050001, number, 0) == 0, name
    assert seccomp.seccomp_load(filter) == 0
os.execv(python, [python, *rest])
"""


class Manager:
    """Starts the daemon and hears what it says; leaving the block stops it."""

    def __init__(self, directory: Path, watchdog_seconds: float, **flags: Any) -> None:
        self.directory = directory
        self.messages: list[dict[str, str]] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(directory / "notify"))
        self._watchdog_seconds = watchdog_seconds
        self._log = directory / "daemon.log"
        self._command = [sys.executable, "-m", "daemon", "serve", *command_line(flags)]
        for name in ("runtime", "state", "credentials"):
            (directory / name).mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "NOTIFY_SOCKET": str(self.directory / "notify"),
            "WATCHDOG_USEC": str(round(self._watchdog_seconds * 1e6)),
            "LISTEN_FDS": "1",
            "RUNTIME_DIRECTORY": str(self.directory / "runtime"),
            "STATE_DIRECTORY": str(self.directory / "state"),
            "CONFIGURATION_DIRECTORY": str(self.directory),
            "CREDENTIALS_DIRECTORY": str(self.directory / "credentials"),
        }

    def __enter__(self) -> "Manager":
        prelude = [sys.executable, "-c", PRELUDE, str(self.listening.fileno()), ",".join(denied_calls())]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prelude, *self._command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                pass_fds=[self.listening.fileno()],
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.listening.close()
        self._notify.close()
        if kind is not None:
            sys.stderr.write(self.log[-8_000:])

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def hear(self, seconds: float) -> dict[str, str] | None:
        """The next message, its fields by name; None when none comes in that time."""
        self._notify.settimeout(seconds)
        try:
            lines = self._notify.recv(65_536).decode().split("\n")
        except TimeoutError:
            return None
        message = dict(line.split("=", 1) for line in lines)
        self.messages.append(message)
        return message

    def wait_for(self, **fields: str) -> dict[str, str]:
        """Hear until a message has these fields; it. What is heard meanwhile lies in `messages`."""
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            message = self.hear(0.5)
            if message is not None and fields.items() <= message.items():
                return message
        raise AssertionError(f"{fields} was not said; said was {self.messages[-5:]}:\n{self.log}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)


@functools.cache
def denied_calls() -> tuple[str, ...]:
    """System calls that the unit's SystemCallFilter= lines leave out; () where nothing here can say or enforce it."""
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return ()
    if shutil.which("systemd-analyze") is None:
        return ()
    allowed: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.+)$", (FOLDER / "reprise.service").read_text(), re.MULTILINE):
        named = {call for group in line.lstrip("~").split() for call in _calls(group)}
        allowed = allowed - named if line.startswith("~") else allowed | named
    return tuple(sorted(_calls("@known") - allowed))


@functools.cache
def _calls(group: str) -> frozenset[str]:
    """A name, or those of a group and of the groups in it."""
    if not group.startswith("@"):
        return frozenset((group,))
    told = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    names = [line.strip() for line in told.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return frozenset(call for name in names for call in _calls(name))
