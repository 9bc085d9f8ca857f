"""Every command that the page offers to copy runs as it stands, and leads to what was selected."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from replay.__main__ import main
from replay.viewer.errors import BadQuestion
from replay.viewer.viewed import Viewed
from tests.replay.recorded_runs import mixed_load, record_run
from tests.replay.viewer.asked import ask, ask_request, ask_step


def run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    name, *arguments = shlex.split(command)
    assert name == "reprise"
    code = main(arguments)
    return code, capsys.readouterr().out


def test_the_commands_lead_to_what_is_selected(viewed: Viewed, capsys: pytest.CaptureFixture[str]) -> None:
    offered: dict[str, Any] = {
        kind: ask(viewed, "command", kind=kind, number=9) for kind in ("request", "step", "block")
    }
    wanted = {"request": "request 9", "step": r"\b9 +> StepPlanned", "block": r"\b9\b"}
    for kind, answer in offered.items():
        code, told = run(answer["command"], capsys)
        assert code == 0
        assert re.search(wanted[kind], told), kind
    assert run(ask(viewed, "command")["command"], capsys)[0] == 0
    assert ask_request(viewed, 9)["command"] == offered["request"]["command"]
    assert ask_step(viewed, 9)["command"] == offered["step"]["command"]


def test_two_recordings_side_by_side_are_a_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = record_run(tmp_path / "it's one", mixed_load(4))
    other = record_run(tmp_path / "another one", mixed_load(5))
    viewed = Viewed.open(one, SystemClock(), tmp_path / "index")
    with pytest.raises(BadQuestion, match="no other recording"):
        ask(viewed, "command", kind="compare")
    viewed.beside_path = other
    code, told = run(ask(viewed, "command", kind="compare")["command"], capsys)
    assert code == 1
    assert "another one" in told
