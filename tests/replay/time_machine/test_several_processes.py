"""A recording of several engine processes: each has steps of its own, and the index tells them apart."""

from pathlib import Path

import pytest

from engine.core.keyframes.freezing import freeze
from replay.debug.session import Session
from replay.index.recording_index import RecordingIndex
from replay.time_machine.time_machine import TimeMachine
from tests.replay.recorded_runs import mixed_load, record_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return record_run(tmp_path / "run", mixed_load(12, seed=1), keyframe_every=30)


def test_steps_and_states_of_each_process_are_its_own(run: Path, tmp_path: Path) -> None:
    alone = TimeMachine(run, tmp_path / "alone")
    states = {step: freeze(alone.at_step(step).core) for step in (3, 20)}
    record_run(run, mixed_load(20, seed=2))
    machine = TimeMachine(run, tmp_path / "index")
    assert [each.life for each in machine.lives] == [1, 2]
    assert {step: freeze(machine.at_step(step, life=1).core) for step in states} == states
    assert all(freeze(machine.at_step(step).core) != state for step, state in states.items())
    session = Session(machine, machine.at_beginning())
    assert session.ask("goto 1:20").values["life"] == 1
    assert session.ask("next").values == {**session.ask("goto 21").values, "life": 1}
    machine.close()
    alone.close()


def test_a_process_that_follows_is_added_to_the_index(run: Path, tmp_path: Path) -> None:
    grown = RecordingIndex(run, tmp_path / "grown")
    first = grown.update()
    record_run(run, mixed_load(20, seed=2))
    assert 0 < grown.update() != first
    again = RecordingIndex(run, tmp_path / "grown")
    assert again.update() == 0
    at_once = RecordingIndex(run, tmp_path / "at once")
    at_once.update()
    for table in ("lives", "requests", "steps", "decisions", "preemptions"):
        with grown.connect() as left, at_once.connect() as right:
            query = f"SELECT * FROM {table}"
            assert [tuple(row) for row in left.execute(query)] == [tuple(row) for row in right.execute(query)]
