"""A counterfactual of a stretch: it begins at a keyframe, with whoever was under way there."""

import json
from pathlib import Path

import pytest

from engine.core.events import RequestArrived
from replay.__main__ import main
from replay.check import check
from replay.lives import Run
from replay.model_runs.open_model import Overrides
from replay.model_runs.real_steps import opener
from replay.refusal import CannotCompare
from replay.span import Span, StepOf
from replay.stretch import stretches_of
from replay.what_if.answer import Answered
from replay.what_if.what_if import Question, what_if
from tests.replay.recorded_runs import LIMITS, SALT, TimedRunner, mixed_load, open_scripted, record_run

NUM_REQUESTS = 60
FROM = Span(StepOf(0, 120))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runner = TimedRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT)
    folder = tmp_path_factory.mktemp("keyframes") / "run"
    return record_run(folder, mixed_load(NUM_REQUESTS), runner=runner, keyframe_every=50)


@pytest.fixture(scope="module")
def answer(run: Path) -> Answered:
    return what_if(run, Question({}, span=FROM))


def num_ended(values: dict[str, dict[str, int]]) -> int:
    return sum(values["finished"].values())


def test_whoever_was_under_way_goes_on_with_the_tokens_that_it_had(run: Path, answer: Answered) -> None:
    (stretch,) = stretches_of(Run.open(run).lives, FROM, lambda refusal: None)
    under_way = stretch.under_way
    assert under_way is not None
    assert any(arrived.num_output_tokens for arrived in under_way.arrivals)
    later = [entry for entry in stretch.entries(lambda refusal: None) if isinstance(entry.event, RequestArrived)]
    assert num_ended(answer.recorded) == num_ended(answer.control) == len(under_way.arrivals) + len(later)
    assert answer.recorded["output_tokens"] == answer.control["output_tokens"] == answer.asked["output_tokens"]
    assert 0 < answer.recorded["steps"] < Run.open(run).count_steps() - 70
    assert "arrive once more" in answer.as_text()


def test_other_limits_hold_from_there_on_and_the_recording_of_it_checks(run: Path, tmp_path: Path) -> None:
    question = Question({"scheduling_policy": "shortest", "num_kv_blocks": 60}, tmp_path / "other", span=FROM)
    answer = what_if(run, question)
    assert answer.asked["preemptions"] < answer.control["preemptions"]
    assert check(tmp_path / "other").exit_code == 0


def test_it_ends_where_it_is_told_to(run: Path, answer: Answered, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(run), "--from", "120", "--to", "200", "--json"]) in (0, 1)
    values = json.loads(capsys.readouterr().out)
    assert 0 < values["recorded"]["steps"] <= 200 - 70 < answer.recorded["steps"]
    assert any("began at the keyframe" in note for note in values["notes"])


def test_the_model_goes_on_from_there_too(run: Path) -> None:
    answer = what_if(run, Question({}, None, opener(Overrides(), open_scripted), FROM))
    assert num_ended(answer.asked) == num_ended(answer.recorded)
    assert answer.asked["output_tokens"] == answer.recorded["output_tokens"]


def test_a_run_whose_oldest_segment_is_gone_begins_at_its_first_keyframe(tmp_path: Path) -> None:
    runner = TimedRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT)
    folder = record_run(
        tmp_path / "run", mixed_load(50, seed=3), runner=runner, max_segment_bytes=40_000, keyframe_every=25
    )
    min(folder.glob("*.rp[rs]")).unlink()
    answer = what_if(folder, Question({}))
    assert num_ended(answer.control) == num_ended(answer.recorded) > 0
    with pytest.raises(CannotCompare, match="come after step"):
        what_if(folder, Question({}, span=Span(StepOf(0, 1))))
