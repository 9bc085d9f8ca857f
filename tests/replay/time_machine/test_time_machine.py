"""States of a recording: at any place the core is as it was, whichever way one came."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.decisions import StepPlanned
from engine.core.keyframes.freezing import State as Frozen
from engine.core.keyframes.freezing import freeze
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.protocol import Arrive, Message
from recorder.reader import Recording
from replay.lives import Run
from replay.refusal import CannotCompare
from replay.time_machine import checkpoints
from replay.time_machine.places import Place
from replay.time_machine.rewinding import Departed
from replay.time_machine.time_machine import TimeMachine
from tests.replay.recorded_runs import LIMITS, changed_decision, entries_of, mixed_load, record_run, rewrite

FAIR = replace(LIMITS, num_kv_blocks=20, swap_space_blocks=12, scheduling_policy="fair", max_num_seqs=4)


def of_tenants(messages: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    """The same load, of three tenants."""
    return [
        (step, message._replace(tenant=f"t{message.request % 3}") if isinstance(message, Arrive) else message)
        for step, message in messages
    ]


@pytest.fixture(scope="module", params=[0, 40], ids=["no keyframes", "keyframes"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("states") / "run"
    load = of_tenants(mixed_load(40, seed=9))
    return record_run(folder, load, limits=FAIR, keyframe_every=request.param, record_content=False)


@pytest.fixture
def machine(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TimeMachine]:
    monkeypatch.setattr(checkpoints, "FIRST_SPACING", 16)
    monkeypatch.setattr(checkpoints, "MAX_CHECKPOINTS", 6)  # so that they are thinned out
    machine = TimeMachine(run, tmp_path)
    yield machine
    machine.close()


def every_state(path: Path) -> list[tuple[Entry, Frozen]]:
    """By brute force: one core, from the start."""
    core = Core(Limits.from_dict(Run.open(path).lives[0].header.limits))
    found = []
    for entry in entries_of(path)[:-1]:  # the last one says that the recording was closed
        core.handle(entry.event, entry.now_ns)  # type: ignore[arg-type]
        found.append((entry, freeze(core)))
    return found


def test_at_any_place_the_state_is_that_of_a_core_played_from_the_start(run: Path, machine: TimeMachine) -> None:
    expected = every_state(run)
    draw = random.Random(0)
    for sequence in draw.sample(range(len(expected)), 60):
        assert freeze(machine.at_sequence(sequence).core) == expected[sequence][1]
        assert freeze(machine.at_sequence(sequence, before=True).core) == (
            expected[sequence - 1][1] if sequence else freeze(Core(FAIR))
        )
    for entry, state in draw.sample(expected, 30):
        plan = entry.decisions[-1] if entry.decisions else None
        if isinstance(plan, StepPlanned):
            found = machine.at_step(plan.step)
            assert (found.step, found.step_under_way) == (plan.step, plan)
            assert freeze(found.core) == state
        assert machine.at_time(entry.now_ns).sequence == entry.sequence
        assert machine.at_time(entry.now_ns - 1).sequence == entry.sequence - 1


def test_going_forward_and_backward_visits_every_place(run: Path, machine: TimeMachine) -> None:
    expected = every_state(run)
    forward = [(state.sequence, freeze(state.core)) for state in machine.forward(Place(1, 100))]
    assert forward == [(entry.sequence, state) for entry, state in expected[101:]]
    stretches = [range(first.sequence, last.sequence + 1) for first, last in machine.backward(Place(1, 100))]
    visited = [sequence for stretch in stretches for sequence in reversed(stretch)]
    assert visited == list(range(99, -2, -1))


def test_a_state_stays_as_it_is_while_another_is_looked_at(machine: TimeMachine) -> None:
    state = machine.at_step(30)
    before = freeze(state.core)
    machine.at_step(31)
    machine.at_step(10)
    assert freeze(state.core) == before


def test_the_waiting_are_admitted_in_the_order_told(machine: TimeMachine) -> None:
    """The order is that of the admissions to come while nobody arrives, gives way or ends in between."""
    num_compared = 0
    for state in machine.forward(Place(1, -1)):
        order = [each.request for each in state.waiting()]
        assert sorted(order) == sorted(
            request.number for request in state.requests.values() if request.status != "running"
        )
        if order and state.core.planner.waiting.head is not None:
            num_compared += 1
            assert order[0] == state.core.planner.waiting.head.number
    assert num_compared > 50


def test_blocks_and_tenants_are_those_of_the_requests(machine: TimeMachine) -> None:
    state = machine.at_step(40)
    blocks = state.blocks()
    for block in blocks:
        owners = sorted(r.number for r in state.requests.values() if block.number in r.block_table)
        assert (list(block.owners), block.num_references) == (owners, len(owners))
    pool = state.pool()
    assert {block.number for block in blocks if block.state == "free"} == set(pool.free)
    assert {block.number for block in blocks if block.state == "cached"} == set(pool.evictable)
    assert {block.digest for block in blocks if block.digest} == set(pool.block_of)
    tenants = state.tenants()
    assert sum(each.num_running for each in tenants) == len(state.running)
    assert sum(each.num_waiting for each in tenants) == len(state.waiting())
    assert any(each.service for each in tenants)


def test_a_place_that_is_not_there_is_refused_with_those_that_are(machine: TimeMachine) -> None:
    with pytest.raises(CannotCompare, match="its steps are 0 to"):
        machine.at_step(10**6)
    with pytest.raises(CannotCompare, match="its entries are 0 to"):
        machine.at_sequence(10**6)
    with pytest.raises(CannotCompare, match="counted from 1 to 1"):
        machine.at_step(0, life=2)


def test_states_end_where_the_core_decides_otherwise_than_recorded(run: Path, tmp_path: Path) -> None:
    changed, sequence, _index = changed_decision(
        list(Recording.open(run).entries(keyframes=True)),
        StepPlanned,
        lambda plan: plan._replace(token_budget_left=plan.token_budget_left + 1),
        occurrence=30,
    )
    machine = TimeMachine(rewrite(run, tmp_path / "changed", lambda _: changed), tmp_path / "index")
    assert machine.at_sequence(sequence - 1).sequence == sequence - 1
    with pytest.raises(Departed, match=f"at sequence {sequence} the core decides otherwise"):
        machine.at_sequence(sequence)
    machine.close()
