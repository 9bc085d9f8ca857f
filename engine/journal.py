"""Log lines to journald with their fields: `journalctl REQUEST_ID=…` finds what one request left, of both processes.

systemd says with JOURNAL_STREAM that a stream is the journal; then each line goes to its socket as it is, else nothing
here is used. It must not know what is logged, nor structlog.

Source: systemd, "Native Journal Protocol"; systemd.exec(5) on $JOURNAL_STREAM.
"""

import array
import errno
import fcntl
import json
import os
import re
import socket
import struct
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

JOURNAL_SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "reprise"
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "exception": 3, "critical": 2}
_OWN = ("MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER")
_MAX_NAME_CHARS = 64
_LENGTH = struct.Struct("<Q")


class Journal:
    """structlog's last processor, `fields_of`, and its logger, every method of which sends such fields.

    fallback   where lines go as JSON when the journal does not take them
    """

    def __init__(self, path: str, fallback: TextIO) -> None:
        """Raises OSError when there is no journal."""
        self._path = path
        self._fallback = fallback
        self._socket = _connected(path)

    def fields_of(
        self, logger: object, method: str, line: MutableMapping[str, Any]
    ) -> tuple[tuple[Any], dict[str, Any]]:
        """The message is for people: the event, and what belongs to it; each value is a field of its own as well."""
        level, event = str(line.pop("level", "info")), str(line.pop("event", ""))
        line.pop("timestamp", None)  # journald has a better one
        short = [f"{key}={value}" for key, value in line.items() if key != "exception"]
        fields = {"MESSAGE": " ".join([event, *short]), "PRIORITY": str(_PRIORITIES.get(level, 6))}
        fields["SYSLOG_IDENTIFIER"] = IDENTIFIER
        for key, value in line.items():
            fields[field_name(key)] = value if isinstance(value, str) else json.dumps(value, default=str)
        return (fields,), {}

    def msg(self, fields: Mapping[str, str]) -> None:
        """One line. A journal that was restarted is found again; while there is none, lines stand on the stream."""
        data = encoded(fields)
        for _attempt in range(2):
            try:
                _send(self._socket, data)
                return
            except OSError:
                try:
                    self._socket.close()
                    self._socket = _connected(self._path)
                except OSError:
                    break
        print(json.dumps(fields), file=self._fallback, flush=True)

    def close(self) -> None:
        self._socket.close()

    debug = info = warning = error = critical = exception = msg


def open_journal(stream: TextIO, environment: Mapping[str, str], path: str = JOURNAL_SOCKET) -> Journal | None:
    """None unless `stream` is the journal, as systemd says."""
    try:
        status = os.fstat(stream.fileno())
        is_journal = environment.get("JOURNAL_STREAM", "") == f"{status.st_dev}:{status.st_ino}"
        return Journal(path, stream) if is_journal else None
    except (OSError, ValueError):  # no file, or no journal
        return None


def field_name(key: str) -> str:
    """As journald takes it: capitals, digits and underscores, a letter first; never one of those that we set."""
    name = re.sub(r"[^A-Z0-9]", "_", key.upper()).lstrip("_0123456789")[:_MAX_NAME_CHARS] or "FIELD"
    return f"FIELD_{name}"[:_MAX_NAME_CHARS] if name in _OWN else name


def encoded(fields: Mapping[str, str]) -> bytes:
    """A value of several lines is given with its length."""
    parts = []
    for name, value in fields.items():
        data = value.encode("utf-8", "surrogatepass")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + _LENGTH.pack(len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _send(connection: socket.socket, data: bytes) -> None:
    """What is too long for a datagram goes as a sealed file in memory. Raises OSError."""
    try:
        connection.send(data)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        _send_as_file(connection, data)


def _send_as_file(connection: socket.socket, data: bytes) -> None:
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    descriptor = os.memfd_create("log line", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
        connection.sendmsg([], [rights])
    finally:
        os.close(descriptor)
