"""Every golden recording is read, checked and executed by this version, as by the one that wrote it."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted
from engine.core.events import StepLaunched
from recorder.format import FORMAT_VERSION
from recorder.fsck import examine
from recorder.reader import Recording
from replay.__main__ import main
from replay.check import check
from replay.execute import execute
from replay.span import Span, StepOf
from replay.verdict import Outcome
from tests.golden.make import AHEAD, DIVERGES, GOLDEN, KEYFRAMES
from tests.replay.recorded_runs import entries_of, open_scripted

FORMATS = [GOLDEN / f"format-{version}" for version in range(1, FORMAT_VERSION + 1)]


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.name)
def test_the_core_decides_as_it_did(path: Path) -> None:
    verdict = check(path)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert (verdict.figures["entries"], verdict.figures["decisions"]) == (72, 161)


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.name)
def test_the_runner_computes_what_it_did(path: Path) -> None:
    verdict = execute(path, open_runner=open_scripted)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert verdict.figures["tokens"] == verdict.figures["hidden_digests"] > 60


def test_keyframes_are_equal_and_replay_begins_at_them() -> None:
    """The states of an older core are compared in the fields that both know, and thawed."""
    verdict = check(KEYFRAMES)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert verdict.figures["keyframes"] == 3
    span = Span(StepOf(0, 40))
    for verdict in (check(KEYFRAMES, span=span), execute(KEYFRAMES, open_runner=open_scripted, span=span)):
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
        assert any("began at the keyframe" in note for note in verdict.notes)


def test_steps_that_were_planned_ahead_are_decided_and_computed_as_they_were() -> None:
    for verdict in (check(AHEAD), execute(AHEAD, open_runner=open_scripted)):
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    planned = [e for e in entries_of(AHEAD) if isinstance(e.event, StepLaunched) and e.decisions]
    assert len(planned) == 58, "of 67 steps"
    span = Span(StepOf(0, 30))
    for verdict in (check(AHEAD, span=span), execute(AHEAD, open_runner=open_scripted, span=span)):
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()


@pytest.mark.parametrize("path", [*FORMATS, KEYFRAMES, AHEAD, DIVERGES], ids=lambda path: path.name)
def test_each_is_sound(path: Path) -> None:
    assert examine(path).is_sound


def test_each_version_says_which_it_is() -> None:
    assert [Recording.open(path).header.format_version for path in FORMATS] == list(range(1, FORMAT_VERSION + 1))


def test_the_one_that_must_diverge_does_so_where_it_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(DIVERGES), "--json"]) == 1
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    (divergence,) = told["divergences"]
    changed = [
        (was.sequence, index)
        for was, is_now in zip(entries_of(FORMATS[-1]), entries_of(DIVERGES), strict=True)
        for index, decision in enumerate(was.decisions)
        if decision != is_now.decisions[index] and isinstance(decision, RequestAdmitted)
    ]
    assert [(divergence["sequence"], divergence["record_index"])] == changed
