"""The sockets that are listened on: those of --host and --port, or those that were handed over, alike from then on.

A peer that takes nothing for `unread_seconds`, though there is something to send, is dropped by the kernel: of all
answers, whoever writes them, and also where the answer is complete and only its last bytes lie there. It must not know
HTTP.
"""

import socket
from collections.abc import Sequence

BACKLOG = 1024
_MAX_USER_TIMEOUT_MS = 2**31 - 1


def listening_sockets(
    host: str, port: int, inherited: Sequence[socket.socket], unread_seconds: float
) -> list[socket.socket]:
    """One for each address that `host` stands for, or `inherited` where there is any. Raises OSError; none stays open.

    Connections inherit the option: tcp(7), TCP_USER_TIMEOUT, which also ends a peer with a closed window (Linux 5.11).
    """
    sockets = list(inherited) or _bind(host, port)
    for each in sockets:
        if each.family != socket.AF_UNIX:
            milliseconds = min(round(unread_seconds * 1000), _MAX_USER_TIMEOUT_MS)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return sockets


def _bind(host: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sockets.append(socket.socket(family, kind, protocol))
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sockets[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # its IPv4 twin is bound apart
            sockets[-1].bind(address)
            sockets[-1].listen(BACKLOG)
            sockets[-1].setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
