"""Recordings of an engine that plans ahead: two plans are open at once, and every reader tells of each in its turn."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.decisions import StepPlanned, TokensEmitted
from engine.core.events import FinishFlag, StepCompleted, StepLaunched
from engine.core.vocabulary import Entry
from engine.protocol import Cancel, Message
from recorder.in_turn import InTurn
from recorder.timeline import Timeline
from replay.__main__ import main
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.span import Span, StepOf
from replay.time_machine.time_machine import TimeMachine
from tests.replay.recorded_runs import LIMITS, bits_of, entries_of, mixed_load, open_scripted, record_run, stopping_load

NUM_CANCELS = sum(isinstance(message, Cancel) for _step, message in mixed_load(30))
AHEAD = replace(LIMITS, async_scheduling=True)


def load() -> list[tuple[int, Message]]:
    return [*mixed_load(30), *stopping_load(12)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("ahead") / "run", load(), limits=AHEAD, keyframe_every=40)


def planned_ahead(entries: list[Entry]) -> int:
    return sum(isinstance(entry.event, StepLaunched) and bool(entry.decisions) for entry in entries)


def test_most_steps_are_planned_while_the_one_before_runs(recorded: Path) -> None:
    entries = entries_of(recorded)
    num_steps = sum(isinstance(entry.event, StepCompleted) for entry in entries)
    assert planned_ahead(entries) > num_steps // 2
    flags = [flag for entry in entries for _r, flag, *_ in getattr(entry.event, "emitted", ())]
    assert flags.count(FinishFlag.STOP) >= 5, "rows of ended requests were to be left out"


def test_its_decisions_and_bits_are_found_again(recorded: Path) -> None:
    assert check(recorded).exit_code == 0
    verdict = execute(recorded, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.figures["preemptions"] > 0
    for name in ("req-3", "req-16", "stops-4"):
        assert isolate(recorded, name, open_runner=open_scripted).exit_code == 0
    middle = Span(StepOf(0, 60))
    assert check(recorded, span=middle).exit_code == 0
    assert execute(recorded, open_runner=open_scripted, span=middle).exit_code == 0


def test_every_request_gets_the_bits_that_it_gets_without_planning_ahead(recorded: Path, tmp_path: Path) -> None:
    in_turn = record_run(tmp_path / "run", load(), limits=LIMITS)
    assert planned_ahead(entries_of(in_turn)) == 0
    with_it, without = bits_of(recorded), bits_of(in_turn)
    shared = [request for request in without if request % 6 != 5]  # the others were cancelled at some step
    assert all(with_it[request] == without[request] for request in shared if request < 30)
    assert all(with_it[request] == without[request] for request in without if request >= 100)


def test_a_timeline_tells_a_decode_from_a_prefill_and_counts_each_steps_time_once(recorded: Path) -> None:
    entries = entries_of(recorded)
    timeline = Timeline(AHEAD, keep_spans=True)
    for entry in entries:
        timeline.apply(entry)
    assert timeline.last_ns is not None
    assert timeline.first_ns is not None
    assert timeline.totals.step_ns <= timeline.last_ns - timeline.first_ns
    assert timeline.num_blocks_free == AHEAD.num_kv_blocks
    for span in timeline.spans.values():
        most_chunks = span.num_prompt_tokens + (span.num_preemptions + 1)
        assert span.num_prefill_chunks <= max(1, most_chunks // 4) + 2 * span.num_preemptions + 2, span.request


def test_in_its_turn_a_step_has_the_rows_that_were_computed(recorded: Path) -> None:
    in_turn, plan, num_left_out = InTurn(), None, 0
    plans: dict[int, StepPlanned] = {}
    for recorded_entry in entries_of(recorded):
        plans |= {it.step: it for it in recorded_entry.decisions if isinstance(it, StepPlanned)}
        entry = in_turn(recorded_entry)
        if isinstance(entry.event, StepCompleted):
            assert plan is not None
            assert plan.step == entry.event.step, "one plan is open at a time"
            assert {row[0] for row in entry.event.emitted} <= {row[0] for row in plan.rows}
            num_left_out += len(plans[plan.step].rows) - len(plan.rows)
            assert not any(isinstance(it, StepPlanned | TokensEmitted) for it in entry.decisions[1:-1])
        plan = next((it for it in entry.decisions if isinstance(it, StepPlanned)), plan)
    assert num_left_out >= 5


def test_an_index_and_its_states_know_both_moments(recorded: Path, tmp_path: Path) -> None:
    machine = TimeMachine(recorded, tmp_path / "index")
    entries = entries_of(recorded)
    ahead = [entry for entry in entries if isinstance(entry.event, StepLaunched) and entry.decisions]
    for entry in ahead[20:80:20]:
        plan = entry.decisions[-1]
        assert isinstance(plan, StepPlanned)
        row = machine.database.execute("SELECT * FROM steps WHERE step = ?", (plan.step,)).fetchone()
        assert row["sequence"] == entry.sequence
        state = machine.at_step(plan.step)
        assert state.step_under_way is not None
        assert (state.step_under_way.step, state.core.step_ahead) == (plan.step - 1, plan)
    machine.close()


def test_what_if_goes_on_planning_ahead(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(recorded), "--scheduling-policy", "shortest", "--json"]) in (0, 1)  # trusted or not
    did = json.loads(capsys.readouterr().out)["decisions"]
    assert did["what_if"]["RequestFinished"] == did["recorded"]["RequestFinished"] == len(load()) - NUM_CANCELS
