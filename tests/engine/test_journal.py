"""Log lines reach journald with their fields, whatever they hold; where there is no journal they stay on the stream."""

import array
import json
import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from engine import log
from engine.journal import Journal, field_name, open_journal


class JournalSocket:
    """What journald's socket would get, read as its protocol says."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(5)

    def close(self) -> None:
        self._socket.close()
        Path(self.path).unlink(missing_ok=True)

    def receive(self) -> dict[str, str]:
        data, ancillary, _flags, _address = self._socket.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        for _level, _kind, rights in ancillary:
            (descriptor,) = array.array("i", rights[:4])
            with os.fdopen(descriptor, "rb") as file:
                file.seek(0)
                data = file.read()
        return parse(data)


def parse(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, is_short, value = line.partition(b"=")
        if is_short:
            fields[name.decode()], data = value.decode(), rest
            continue
        (length,) = struct.unpack_from("<Q", rest)
        fields[name.decode()] = rest[8 : 8 + length].decode()
        assert rest[8 + length : 9 + length] == b"\n"
        data = rest[9 + length :]
    return fields


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[JournalSocket]:
    listening = JournalSocket(tmp_path / "socket")
    yield listening
    listening.close()
    structlog.reset_defaults()


@pytest.fixture
def logged_to(journald: JournalSocket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The process logs to a stream that systemd calls the journal."""
    path = tmp_path / "stderr"
    with path.open("w") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        journal = open_journal(stream, os.environ, journald.path)
        assert journal is not None
        monkeypatch.setattr(log, "open_journal", lambda stream, environment: journal)
        log.set_up_logging("info", stream)
        yield path
        journal.close()


def test_fields_can_be_asked_for(journald: JournalSocket, logged_to: Path) -> None:
    structlog.get_logger().debug("hidden")
    structlog.get_logger().info("request ended", request_id="chat-7", trace_id="ab" * 16, ms=12)
    assert journald.receive() == {
        "MESSAGE": f"request ended request_id=chat-7 trace_id={'ab' * 16} ms=12",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "reprise",
        "REQUEST_ID": "chat-7",
        "TRACE_ID": "ab" * 16,
        "MS": "12",
    }
    assert logged_to.read_text() == ""


def test_a_traceback_and_a_forged_field_stay_one_fields_value(journald: JournalSocket, logged_to: Path) -> None:
    try:
        raise ArithmeticError("broken")
    except ArithmeticError:
        structlog.get_logger().exception("failed", request_id="x\nPRIORITY=0\nMESSAGE=forged")
    fields = journald.receive()
    assert fields["PRIORITY"] == "3"
    assert fields["REQUEST_ID"] == "x\nPRIORITY=0\nMESSAGE=forged"
    assert fields["EXCEPTION"].endswith("ArithmeticError: broken")
    assert fields["MESSAGE"].startswith("failed ")


def test_a_line_too_long_for_a_datagram_arrives_whole(journald: JournalSocket, logged_to: Path) -> None:
    text = "long " * 200_000
    structlog.get_logger().warning("much", text=text)
    assert journald.receive()["TEXT"] == text


def test_a_journal_that_was_restarted_is_found_again(journald: JournalSocket, logged_to: Path) -> None:
    journald.close()
    structlog.get_logger().info("lost its journal", request_id="r")
    assert json.loads(logged_to.read_text())["REQUEST_ID"] == "r"
    again = JournalSocket(Path(journald.path))
    structlog.get_logger().info("has one", request_id="s")
    assert again.receive()["REQUEST_ID"] == "s"
    again.close()


def test_a_stream_that_is_not_the_journal_gets_json(
    journald: JournalSocket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:12345")
    with (tmp_path / "stderr").open("w") as stream:
        assert open_journal(stream, os.environ, journald.path) is None
        log.set_up_logging("info", stream)
        structlog.get_logger().info("shown", num_tokens=3)
    assert json.loads((tmp_path / "stderr").read_text())["num_tokens"] == 3


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("request_id", "REQUEST_ID"),
        ("_x", "X"),
        ("9a", "A"),
        ("a-b.c", "A_B_C"),
        ("message", "FIELD_MESSAGE"),
        ("é", "FIELD"),
    ],
)
def test_names_are_such_as_journald_takes(key: str, name: str) -> None:
    assert field_name(key) == name


def test_without_a_journal_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), (tmp_path / "stderr").open("w") as stream:
        Journal(str(tmp_path / "nowhere"), stream)


def test_levels_are_syslogs(journald: JournalSocket, logged_to: Path) -> None:
    for method, priority in (("warning", "4"), ("error", "3"), ("critical", "2")):
        getattr(structlog.get_logger(), method)("said")
        assert journald.receive()["PRIORITY"] == priority
    assert log.Logger.least == logging.INFO
