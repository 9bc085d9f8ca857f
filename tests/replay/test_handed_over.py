"""An engine dies and its requests go on in the next one: such a run is asked what if, and is shrunk, like any other."""

from pathlib import Path

import pytest

from engine.core.decisions import RequestFinished
from engine.core.events import RequestArrived
from engine.protocol import Arrive, Message, Restarted, Stop
from replay.check import check
from replay.lives import Run
from replay.shrink.shrink import setting_for, shrink
from replay.what_if.what_if import Question, what_if
from tests.replay.recorded_runs import LIMITS, SALT, TimedRunner, mixed_load, record_run

DIES_AT = 40  # step of the first engine


def timed_runner() -> TimedRunner:
    return TimedRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handed over") / "run"
    load = mixed_load(24)
    record_run(
        folder, [*[item for item in load if item[0] < DIES_AT], (DIES_AT, Stop("killed"))], runner=timed_runner()
    )
    (life,) = Run.open(folder).lives
    outputs, arrivals, ended = life.contents().outputs, set[int](), set[int]()
    for entry in life.entries():
        arrivals |= {entry.event.request} if isinstance(entry.event, RequestArrived) else set()
        ended |= {decision.request for decision in entry.decisions if isinstance(decision, RequestFinished)}
    live = sorted(arrivals - ended)
    assert any(outputs(number) for number in live)
    asked = {message.request: message for _step, message in load if isinstance(message, Arrive)}
    again: list[tuple[int, Message]] = [
        (0, Restarted((), tuple([(number, len(outputs(number))) for number in live]))),
        *[(0, _with_outputs(asked[number], tuple(outputs(number)))) for number in live],
        *[(step - DIES_AT, message) for step, message in load if step >= DIES_AT],
    ]
    return record_run(folder, again, runner=timed_runner())


def _with_outputs(arrive: Arrive, outputs: tuple[int, ...]) -> Arrive:
    return arrive._replace(contents=arrive.contents._replace(output_token_ids=outputs), num_handovers=1)


def test_the_recorded_settings_give_both_engines_again_and_others_hold_in_both(run: Path) -> None:
    assert len(Run.open(run).lives) == 2
    answer = what_if(run, Question({}))
    assert answer.fork is None
    for name in ("finished", "output_tokens", "preemptions", "steps"):
        assert answer.recorded[name] == answer.control[name] == answer.asked[name], name
    assert sum(answer.recorded["finished"].values()) == 24, "a request that was handed over counts once"
    other = what_if(run, Question({"num_kv_blocks": 200}))
    assert sum(other.asked["finished"].values()) == 24
    assert other.asked["preemptions"] == 0 < other.recorded["preemptions"]


def test_what_fails_in_the_second_engine_is_shrunk_with_the_tokens_of_the_first(run: Path, tmp_path: Path) -> None:
    predicate = "expr:[e for e in entries if getattr(e.event, 'num_output_tokens', 0)]"
    found = shrink(run, setting_for(predicate, has_vault=False), tmp_path / "small")
    assert found is not None
    (caller,) = found.after.callers
    assert caller.arrived.num_output_tokens > 0
    assert caller.arrived.num_handovers == 1
    assert check(tmp_path / "small").exit_code == 0
