"""Sockets that are handed over: for whom they are, and what cannot be listened on."""

import os
import socket
from pathlib import Path

import pytest

from daemon.systemd import sockets
from daemon.systemd.notices import Notices
from daemon.systemd.sockets import UnusableSocket, take_sockets


def environment(pid: int, number: int = 1) -> dict[str, str]:
    return {"LISTEN_PID": str(pid), "LISTEN_FDS": str(number), "LISTEN_FDNAMES": "x", "HOME": "/"}


def test_sockets_meant_for_another_process_are_left_alone() -> None:
    given = environment(os.getppid())
    assert take_sockets(given) == take_sockets({}) == []
    assert given == {"HOME": "/"}, "children must not take them for theirs"


def test_a_listening_socket_is_taken_and_not_given_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        descriptor = os.dup(listening.fileno())
        os.set_inheritable(descriptor, True)
        monkeypatch.setattr(sockets, "FIRST_DESCRIPTOR", descriptor)
        (taken,) = take_sockets(environment(os.getpid()))
        with taken:
            assert taken.getsockname() == listening.getsockname()
            assert not taken.get_inheritable()


def test_what_does_not_listen_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as idle, (tmp_path / "file").open("w") as file:
        for descriptor, told in ((os.dup(idle.fileno()), "ListenStream="), (os.dup(file.fileno()), "is no socket")):
            monkeypatch.setattr(sockets, "FIRST_DESCRIPTOR", descriptor)
            with pytest.raises(UnusableSocket, match=told):
                take_sockets(environment(os.getpid()))
            if told == "is no socket":
                os.close(descriptor)


def test_notices_go_to_abstract_addresses_too_and_nowhere_without_one() -> None:
    name = f"@reprise-test-{os.getpid()}"
    given = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:])
        notices = Notices.taken_from(given)
        assert (notices.watchdog_seconds, given) == (3.0, {"HOME": "/"})
        notices.ready("one\nREADY=0 two")
        assert manager.recv(4096) == b"READY=1\nSTATUS=one READY=0 two"
        notices.close()
    silent = Notices.taken_from({"WATCHDOG_USEC": "3000000"})
    silent.watchdog()
    assert (silent.has_listener, silent.watchdog_seconds) == (False, 0.0)
