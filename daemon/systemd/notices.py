"""Messages to the service manager: a datagram each, to the socket that it names. Source: sd_notify(3), systemd 257.

The environment that names it is taken, not read: what the daemon starts must not speak for it. A message that cannot
be delivered is dropped, for serving does not depend on who watches. It must not know when what is said.
"""

import contextlib
import os
import socket
from collections.abc import MutableMapping

MAX_STATUS_CHARS = 500


class Notices:
    """
    address            path of the socket, "@…" for an abstract one; "" says nothing to nobody
    watchdog_seconds   without a `watchdog` for so long the manager ends this process; 0: it does not watch
    """

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds if address else 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> "Notices":
        """NOTIFY_SOCKET and WATCHDOG_… are removed from `environment`."""
        address, for_pid, microseconds = (
            environment.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
        )
        is_watched = microseconds.isdigit() and for_pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 1e6 if is_watched else 0.0)

    @property
    def has_listener(self) -> bool:
        return self._socket is not None

    def ready(self, status: str) -> None:
        self._send("READY=1", _status(status))

    def reloading(self, now_ns: int) -> None:
        """`now_ns` is monotonic: the manager takes no READY for the reload's end that is older than this."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_ns // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", _status(status))

    def status(self, status: str) -> None:
        self._send(_status(status))

    def extend_timeout(self, seconds: float) -> None:
        """Starting or stopping goes on, and the manager is to wait for so long from now on."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)


def _status(text: str) -> str:
    """On one line: a line end would begin another field."""
    return "STATUS=" + " ".join(text.split())[:MAX_STATUS_CHARS]
