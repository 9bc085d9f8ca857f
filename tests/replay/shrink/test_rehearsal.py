"""A scenario taken from a recording and performed again goes as it went, until something is left out."""

from pathlib import Path

import pytest

from engine.core.scheduler import Core
from engine.core.vocabulary import Entry, RecordingClosed
from replay.lives import Run
from replay.model_runs.open_model import Overrides
from replay.model_runs.stage import ModelStage
from replay.shrink.counted import CountedExecutor
from replay.shrink.evidence import Evidence
from replay.shrink.predicates import parse
from replay.shrink.rehearsal import perform
from replay.shrink.scenario import Scenario, scenario_of
from tests.replay.recorded_runs import entries_of, open_scripted


def recorded(path: Path) -> list[Entry]:
    return [entry for entry in entries_of(path) if not isinstance(entry.event, RecordingClosed)]


@pytest.fixture
def scenario(recording: Path) -> Scenario:
    (life,) = Run.open(recording).lives
    return scenario_of(life, lambda refusal: None, with_contents=True)


def test_counted_again_every_decision_comes_at_the_time_it_was_recorded(recording: Path, scenario: Scenario) -> None:
    performed = perform(scenario, CountedExecutor(scenario.limits.block_size), Core(scenario.limits))
    assert [(entry.now_ns, entry.decisions) for entry in performed.entries] == [
        (entry.now_ns, entry.decisions) for entry in recorded(recording)
    ]


def test_with_a_model_every_entry_and_token_is_the_recorded_one(recording: Path, scenario: Scenario) -> None:
    stage = ModelStage(scenario.header, Overrides(), open_scripted)
    performed = perform(scenario, stage.executor(scenario.limits), Core(scenario.limits))
    assert performed.entries == recorded(recording)
    (life,) = Run.open(recording).lives
    evidence = Evidence.of_performed(performed, stage)
    assert evidence.contents is not None
    assert evidence.contents.tokens == {step: rows for step, rows in life.contents().tokens.items() if rows}


def test_without_half_of_the_callers_the_others_still_come_to_their_ends(scenario: Scenario) -> None:
    half = scenario.only(scenario.callers[::2])
    performed = perform(half, CountedExecutor(half.limits.block_size), Core(half.limits))
    assert not performed.error
    spans = Evidence.of_performed(performed, None).timeline.spans
    assert sorted(spans) == [caller.number for caller in half.callers]
    assert all(span.outcome for span in spans.values())


def test_a_healthy_run_alone_gives_what_it_gave_in_company(scenario: Scenario) -> None:
    stage = ModelStage(scenario.header, Overrides(), open_scripted)
    performed = perform(scenario, stage.executor(scenario.limits), Core(scenario.limits))
    assert not parse("isolation-differs").holds(Evidence.of_performed(performed, stage))


def test_what_the_core_raises_ends_the_performance_as_it_ends_an_engine(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, num_handled = Core(scenario.limits), 0
    handle = core.handle

    def dying(event: object, now_ns: int) -> object:
        nonlocal num_handled
        num_handled += 1
        if num_handled == 20:
            raise AssertionError("a block is lost")
        return handle(event, now_ns)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(core, "handle", dying)
    performed = perform(scenario, CountedExecutor(scenario.limits.block_size), core)
    assert performed.error == "AssertionError: a block is lost"
    assert len(performed.entries) == 20
    assert performed.entries[-1].decisions == ()
    assert parse("engine-dies").holds(Evidence.of_performed(performed, None))
