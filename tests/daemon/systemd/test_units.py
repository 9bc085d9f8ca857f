"""The units as they are installed: judged by the real systemd-analyze, where there is one."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from daemon.__main__ import main
from daemon.config import DaemonConfig
from daemon.systemd.install import NEWEST, installed_command, systemd_version, unit_files

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed: apt-get install systemd"
)


def written(folder: Path, *, for_user: bool = False, with_gpu: bool = False) -> Path:
    """The service's file; the others lie beside it."""
    files = unit_files(installed_command(), systemd_version(), for_user=for_user, with_gpu=with_gpu)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "reprise.service"


def analyze(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = ["systemd-analyze", *map(str, arguments)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": "/run"}  # without one it knows no user's manager
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def exposure(service: Path) -> float:
    told = analyze("security", "--offline=true", service)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told.stdout)
    assert found, told.stdout + told.stderr
    return float(found[1])


@needs_systemd
@pytest.mark.parametrize("for_user", [False, True])
def test_systemd_has_nothing_to_say_about_the_units(tmp_path: Path, for_user: bool) -> None:
    service = written(tmp_path, for_user=for_user)
    manager = ["--user"] if for_user else []
    told = analyze("verify", *manager, service, *([] if for_user else [tmp_path / "reprise.socket"]))
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_gpus_drop_in(tmp_path: Path) -> None:
    told = analyze("verify", written(tmp_path, with_gpu=True))
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@needs_systemd
def test_the_service_is_exposed_to_little(tmp_path: Path) -> None:
    assert exposure(written(tmp_path)) <= 1.2
    assert exposure(written(tmp_path, with_gpu=True)) <= 2.0


def test_an_older_systemd_gets_a_unit_that_it_knows() -> None:
    new, old = (unit_files(Path("/opt/r/reprise"), version)["reprise.service"] for version in (NEWEST, 252))
    assert "Type=notify-reload\n" in new
    assert "Type=notify\nExecReload=/bin/kill -HUP $MAINPID\n" in old
    assert "ExecStart=/opt/r/reprise serve\n" in old


def test_the_drain_fits_the_time_that_the_unit_gives_to_stopping() -> None:
    found = re.search(r"^TimeoutStopSec=(\d+)$", unit_files(Path("/r"), NEWEST)["reprise.service"], re.MULTILINE)
    assert found
    assert DaemonConfig().drain_timeout + 4.5 < int(found[1])


def test_install_unit_writes_for_a_user_or_only_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["install-unit", "--user", "--dry-run"]) == 0
    assert f"ExecStart={installed_command()} serve" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert main(["install-unit", "--user"]) == 0
    assert "systemctl --user daemon-reload" in capsys.readouterr().out
    text = (tmp_path / "systemd" / "user" / "reprise.service").read_text()
    assert "DynamicUser" not in text
    assert "WantedBy=default.target" in text
