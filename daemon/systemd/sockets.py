"""Sockets that the service manager has opened and handed over: sd_listen_fds(3). The address outlives the daemon then.

While no daemon runs, or one loads its model, connections wait in the socket's queue. It must not know HTTP.
"""

import os
import socket
from collections.abc import MutableMapping

from engine.core.errors import EngineError

FIRST_DESCRIPTOR = 3


class UnusableSocket(EngineError):
    """What was handed over is no listening stream socket."""


def take_sockets(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Those meant for this process, none elsewhere. LISTEN_… are removed from `environment`. Raises UnusableSocket."""
    for_pid, number, _names = (environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if for_pid != str(os.getpid()) or not number.isdigit():
        return []
    return [_listening(descriptor) for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(number))]


def _listening(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)  # the engine process must not keep the address
    try:
        taken = socket.socket(fileno=descriptor)
        is_listening = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    except OSError as error:
        raise UnusableSocket(f"descriptor {descriptor} of LISTEN_FDS is no socket: {error.strerror}") from error
    if not is_listening or taken.type != socket.SOCK_STREAM:
        taken.close()
        raise UnusableSocket(
            f"descriptor {descriptor} of LISTEN_FDS does not listen for streams: use ListenStream= and Accept=no"
        )
    taken.setblocking(False)
    return taken
