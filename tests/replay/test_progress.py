"""The progress line: seen on a terminal only, and wiped at the end."""

import io
import sys

import pytest

from engine.clock import ManualClock
from replay.progress import Progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_line_shows_how_far_it_is_and_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := _Terminal())
    clock = ManualClock()
    with Progress("execute", "steps", 40, clock) as progress:
        progress.at(1)
        assert terminal.getvalue() == "", "not more often than ten times a second"
        clock.advance(2_000_000_000)
        progress.at(10)
        assert "execute: 10 of 40 steps, 5/s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_elsewhere_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    clock = ManualClock()
    with Progress("execute", "steps", 40, clock) as progress:
        clock.advance(2_000_000_000)
        progress.at(10)
    assert log.getvalue() == ""
