"""The command as an operator starts it: what cannot be served ends it with one line and leaves nothing behind."""

import socket
import subprocess
import sys
from pathlib import Path

from daemon.config import DaemonConfig
from daemon.run_directory import default_record_directory, make_run_directory
from engine.clock import ManualClock


def serve(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "daemon", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_in_use_is_named_and_no_folder_is_left(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = serve("--port", str(taken.getsockname()[1]), "--record-dir", str(tmp_path))
    assert ended.returncode == 1
    assert "Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_nowhere_is_named(tmp_path: Path) -> None:
    ended = serve("--model", "no-such-model", "--record-dir", str(tmp_path))
    assert ended.returncode == 1
    assert "no-such-model" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_serving_imports_neither_torch_nor_replay() -> None:
    code = (
        "import sys; sys.argv = ['reprise', 'serve', '--port', 'x']; from daemon.__main__ import main; main(); "
        "import daemon.application, daemon.server; "
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'replay')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"


def test_a_run_has_a_folder_of_its_own_named_by_its_time(tmp_path: Path) -> None:
    clock = ManualClock(1_796_035_500 * 10**9)
    config = DaemonConfig(record_dir=str(tmp_path / "recordings"))
    first, second = (make_run_directory(config, {}, clock) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first != second
    assert first.name.startswith("20261130T104500Z-")
    assert first.stat().st_mode & 0o777 == 0o700


def test_nothing_is_made_where_nothing_is_recorded(tmp_path: Path) -> None:
    assert make_run_directory(DaemonConfig(record_dir="none"), {}, ManualClock()) is None


def test_recordings_lie_in_the_state_directory() -> None:
    assert default_record_directory({"STATE_DIRECTORY": "/var/lib/reprise"}) == Path("/var/lib/reprise/recordings")
    assert default_record_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/reprise/recordings")
    assert default_record_directory({}) == Path("~/.local/state/reprise/recordings").expanduser()
