"""Injected faults strike where they are named, by number or by seed, and never otherwise."""

from dataclasses import dataclass, field

import pytest

from engine.clock import ManualClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.decisions import RequestAdmitted, StepPlanned
from engine.core.events import FinishFlag, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.injected_faults import EngineEffects, inject_into
from engine.injection import POINTS, Injector, JumpingClock, UnknownInjection, parse_injection
from tests.replay.recorded_runs import make_runner


@dataclass
class Noted:
    struck: list[tuple[str, int]] = field(default_factory=list)

    def slow_down(self, nanoseconds: int) -> None:
        self.struck.append(("slow", nanoseconds))

    def jump(self, nanoseconds: int) -> None:
        self.struck.append(("jump", nanoseconds))

    def fill_disk(self) -> None:
        self.struck.append(("disk", 0))

    def leave(self, request: int) -> None:
        self.struck.append(("leave", request))

    def die(self) -> None:
        self.struck.append(("die", 0))


def plan(step: int) -> StepPlanned:
    return StepPlanned(step, ((7, 0, 3),), (), (), 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "struck"),
    [
        ("step-slow@step=4:ms=20", ("slow", 20_000_000)),
        ("clock-jumps@step=4", ("jump", 10_000_000_000)),
        ("disk-full@step=4", ("disk", 0)),
        ("client-leaves@step=4", ("leave", 7)),
        ("executor-dies@step=4", ("die", 0)),
    ],
)
def test_a_fault_strikes_at_its_step_only(text: str, struck: tuple[str, int]) -> None:
    noted = Noted()
    injector = Injector([parse_injection(text)], noted)
    for step in range(10):
        injector.before(plan(step))
    assert noted.struck == [struck]


def test_an_allocation_fails_by_raising() -> None:
    injector = Injector([parse_injection("alloc-fails@step=1")], Noted())
    injector.before(plan(0))
    with pytest.raises(MemoryError, match="injected: no memory for step 1"):
        injector.before(plan(1))


def test_one_row_loses_its_logits() -> None:
    injector = Injector([parse_injection("nan-logits@step=2")], Noted())
    completed = StepCompleted(2, ((7, "", 1, 2), (8, "", 3, 4)), (), 0, 0)
    assert injector.after(completed).emitted == ((7, FinishFlag.ERROR, 1, 2), (8, "", 3, 4))
    assert injector.after(completed._replace(step=3)).emitted == completed.emitted


def test_a_seed_draws_about_one_step_in_so_many_and_always_the_same() -> None:
    injection = parse_injection("nan-logits@seed=7:every=10")
    struck = [step for step in range(1_000) if injection.strikes(step)]
    assert 60 < len(struck) < 140
    assert struck == [step for step in range(1_000) if injection.strikes(step)]
    assert struck != [step for step in range(1_000) if parse_injection("nan-logits@seed=8:every=10").strikes(step)]


@pytest.mark.parametrize(
    "text",
    ["", "nan-logits", "nan-logits@", "nan-logits@step", "rain@step=1", "nan-logits@step=1:seed=2", "step-slow@ms=1"],
)
def test_what_names_no_fault_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UnknownInjection, match=", ".join(POINTS)):
        parse_injection(text)


def test_a_runner_with_faults_fails_spoils_and_cancels() -> None:
    cancelled: list[int] = []
    clock = JumpingClock(ManualClock())
    runner = make_runner()
    faults = ["alloc-fails@step=0", "client-leaves@step=1", "clock-jumps@step=1:ms=3", "nan-logits@step=1"]
    inject_into(runner, faults, EngineEffects(clock, cancelled.append, lambda: None))
    runner.add_request(7, SamplingParams(seed=1), RequestContents((1, 2, 3)))
    runner.carry_out(RequestAdmitted(7, (0,), 0, (), 9, 0))
    with pytest.raises(MemoryError):
        runner.execute(plan(0))
    completed, outputs, _prompts = runner.execute(plan(1))
    assert completed.emitted[0][1] == FinishFlag.ERROR
    assert outputs == ()
    assert cancelled == [7]
    assert clock.now_ns() == 3_000_000


def test_an_engine_has_no_faults_unless_it_is_told() -> None:
    assert EngineConfig(model="any").inject == ()
    assert EngineConfig.from_json(EngineConfig(model="any", inject=("disk-full@step=1",)).to_json()).inject == (
        "disk-full@step=1",
    )
