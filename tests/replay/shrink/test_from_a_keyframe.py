"""Shrinking and exporting a stretch: it begins at a keyframe, with whoever was under way there."""

import runpy
from pathlib import Path

import pytest

from engine.core.events import RequestArrived
from replay.__main__ import main
from replay.check import check
from replay.export.pytest_fixture import export_test
from replay.lives import Run
from replay.shrink.scenario import scenario_of_stretch
from replay.shrink.shrink import setting_for, shrink
from replay.span import Span, StepOf
from replay.stretch import stretches_of
from tests.replay.recorded_runs import mixed_load, record_run

PREDICATE = "preempted-more-than:0"
FROM = Span(StepOf(0, 60))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("keyframes") / "run", mixed_load(30), keyframe_every=20)


def test_whoever_was_under_way_comes_with_what_it_had(run: Path) -> None:
    (stretch,) = stretches_of(Run.open(run).lives, FROM, lambda refusal: None)
    scenario = scenario_of_stretch(stretch, lambda refusal: None, with_contents=True)
    assert stretch.under_way is not None
    first, *_ = [caller for caller in scenario.callers if caller.arrived.num_output_tokens]
    assert first.at_ns == stretch.under_way.now_ns
    assert first.contents is not None
    assert len(first.contents.output_token_ids) == first.arrived.num_output_tokens
    arrivals = [entry for entry in stretch.entries(lambda refusal: None) if isinstance(entry.event, RequestArrived)]
    assert len(scenario.callers) == len(stretch.under_way.arrivals) + len(arrivals) < 30


def test_a_failure_of_the_stretch_is_shrunk_and_is_a_recording(run: Path, tmp_path: Path) -> None:
    found = shrink(run, setting_for(PREDICATE, has_vault=False), tmp_path / "small", span=FROM)
    assert found is not None
    assert len(found.before.callers) < 30
    assert len(found.after.callers) == 2
    assert found.is_minimal
    assert check(tmp_path / "small").exit_code == 0


def test_the_test_of_a_stretch_stands_for_itself(run: Path, tmp_path: Path) -> None:
    exported = export_test(run, tmp_path / "tests", PREDICATE, span=FROM)
    assert "is preempted" in exported["finding"]
    (path,) = (tmp_path / "tests").glob("test_*.py")
    (test,) = [function for name, function in runpy.run_path(str(path)).items() if name.startswith("test_")]
    with pytest.raises(AssertionError, match="is preempted"):
        test()
    sound = tmp_path / "sound"
    assert main(["export", str(run), "--pytest", str(sound), "--from", "60"]) == 0
    assert "is_decided_as_recorded" in next(sound.glob("test_*.py")).read_text("utf-8")
    assert main(["export", str(run), "--format", "jsonl", "--from", "60", "-o", str(tmp_path / "x")]) == 2
