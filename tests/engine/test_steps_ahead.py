"""The loop with steps planned ahead: the order of launches, events and results, and what is held back in between."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from engine.clock import ManualClock
from engine.core.decisions import Decision, RequestFinished, StepPlanned, TokensEmitted
from engine.core.events import RequestArrived, RequestCancelled, StepCompleted, StepFailed, StepLaunched
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.interface import StepResult
from engine.execution.launching import Worker
from engine.execution.scripted import ScriptedRunner
from engine.injected_faults import EngineEffects, inject_into
from engine.injection import JumpingClock
from engine.loop import EngineLoop
from engine.protocol import Cancel, Message, Stop
from tests.engine.test_loop import Inbox, Witness, arrive

LIMITS = Limits(
    num_kv_blocks=16, block_size=4, max_num_seqs=4, max_num_batched_tokens=8, max_model_len=32, async_scheduling=True
)


class Told(ScriptedRunner):
    """Tells when it is launched, collected, and has anything carried out; some steps raise."""

    def __init__(self, log: list[tuple[str, Any]], fails: frozenset[tuple[str, int]] = frozenset()) -> None:
        super().__init__(16, 4, b"k" * 16)
        self._log = log
        self._fails = fails
        self._plan: StepPlanned | None = None

    def launch(self, plan: StepPlanned) -> None:
        self._log.append(("launch", plan.step))
        if ("launch", plan.step) in self._fails:
            raise MemoryError("no room")
        self._plan = plan

    def collect(self) -> StepResult:
        assert self._plan is not None
        plan, self._plan = self._plan, None
        self._log.append(("collect", plan.step))
        if ("collect", plan.step) in self._fails:
            raise RuntimeError("boom")
        return super().execute(plan)

    def carry_out(self, decision: Decision) -> None:
        assert self._plan is None, "a step runs"
        self._log.append(("carry out", type(decision).__name__))
        super().carry_out(decision)


def run(
    idle: list[Message], during: dict[int, list[Message]] | None = None, fails: frozenset[tuple[str, int]] = frozenset()
) -> Witness:
    """`during[n]`: at the loop's n-th look into the inbox while a step runs."""
    witness = Witness()
    loop = EngineLoop(Core(LIMITS), Told(witness.log, fails), ManualClock(), witness, witness.publish)
    with capture_logs():
        assert loop.serve(Inbox(idle, during or {})) == "done"
    return witness


def told(witness: Witness) -> list[str]:
    """Launches, collections, and the entries' events, in order."""
    lines = []
    for name, item in witness.log:
        if name in ("launch", "collect"):
            lines.append(f"{name} {item}")
        elif name == "record" and isinstance(item, Entry):
            planned = [d.step for d in item.decisions if isinstance(d, StepPlanned)]
            lines.append(type(item.event).__name__ + "".join(f" plans {step}" for step in planned))
    return lines


def test_the_next_step_is_launched_before_the_result_is_told() -> None:
    assert told(run([arrive(0, output=3)])) == [
        "RequestArrived plans 0",
        "launch 0",
        "StepLaunched plans 1",
        "collect 0",
        "launch 1",
        "StepCompleted",
        "StepLaunched plans 2",
        "collect 1",
        "launch 2",
        "StepCompleted",
        "StepLaunched",
        "collect 2",
        "StepCompleted",
    ]


def test_who_comes_while_a_step_runs_takes_part_in_the_planning_ahead() -> None:
    witness = run([arrive(0, output=4)], {0: [arrive(1)]})
    ahead = next(entry for entry in witness.entries if isinstance(entry.event, StepLaunched))
    assert isinstance(ahead.decisions[-1], StepPlanned)
    assert [row[0] for row in ahead.decisions[-1].rows] == [0, 1]
    kinds = [type(entry.event) for entry in witness.entries]
    assert kinds[:4] == [RequestArrived, RequestArrived, StepLaunched, StepCompleted]


def test_a_request_that_leaves_while_its_row_is_planned_ahead_gets_no_further_token() -> None:
    witness = run([arrive(0, output=8)], {1: [Cancel(0, "client")]})
    cancelled = next(entry for entry in witness.entries if isinstance(entry.event, RequestCancelled))
    (end,) = cancelled.decisions
    assert isinstance(end, RequestFinished)
    assert end.num_output_tokens == sum(isinstance(d, TokensEmitted) for e in witness.entries for d in e.decisions) == 1


@pytest.mark.parametrize("moment", ["launch", "collect"])
def test_a_step_that_fails_ends_its_requests_and_the_one_ahead_is_launched_after_that(moment: str) -> None:
    witness = run([arrive(0, output=8)], {0: [arrive(1, output=2)]}, frozenset([(moment, 0)]))
    lines = told(witness)
    assert lines.index("StepFailed") < lines.index("launch 1")
    ends = {d.request: d.reason for e in witness.entries for d in e.decisions if isinstance(d, RequestFinished)}
    assert ends == {0: "failed", 1: "length"}
    (failed,) = [entry.event for entry in witness.entries if isinstance(entry.event, StepFailed)]
    assert failed.error == ("MemoryError: no room" if moment == "launch" else "RuntimeError: boom")


def test_a_stop_leaves_no_step_running() -> None:
    witness = Witness()
    loop = EngineLoop(Core(LIMITS), Told(witness.log), ManualClock(), witness, witness.publish)
    assert loop.serve(Inbox([arrive(0, output=8)], {1: [Stop("now")]})) == "now"
    moments = [name for name, _item in witness.log if name in ("launch", "collect")]
    assert moments == ["launch", "collect"] * 2


def test_keyframes_are_taken_when_no_step_is_planned_ahead() -> None:
    class Wanting(Witness):
        wants_keyframe = True

        def record_keyframe(self, keyframe: Entry) -> None:
            self.log.append(("keyframe", keyframe))

    witness = Wanting()
    loop = EngineLoop(Core(LIMITS), Told(witness.log), ManualClock(), witness, witness.publish)
    loop.serve(Inbox([arrive(0, output=4)], {}))
    sequences = {keyframe.sequence for keyframe in witness.of("keyframe") if isinstance(keyframe, Entry)}
    launched = {e.sequence for e in witness.entries if isinstance(e.event, StepLaunched) and e.decisions}
    assert sequences
    assert not sequences & {sequence + 1 for sequence in launched}


def test_faults_are_injected_into_a_launched_step_as_well() -> None:
    log: list[tuple[str, Any]] = []
    runner, clock = Told(log), JumpingClock(ManualClock())
    inject_into(runner, ["alloc-fails@step=0", "nan-logits@step=2"], EngineEffects(clock, lambda n: None, lambda: None))
    witness = Witness()
    loop = EngineLoop(Core(LIMITS), runner, clock, witness, witness.publish)
    with capture_logs():
        loop.serve(Inbox([arrive(0), arrive(1)], {}))
    ends = {d.request: d.reason for e in witness.entries for d in e.decisions if isinstance(d, RequestFinished)}
    assert ends == {0: "failed", 1: "failed"}
    assert any(isinstance(entry.event, StepFailed) for entry in witness.entries)


def test_a_worker_gives_what_the_call_gives_or_raises() -> None:
    worker = Worker()
    assert worker.begin(lambda: 5)() == 5

    def fails() -> None:
        raise ValueError("of the call")

    with pytest.raises(ValueError, match="of the call"):
        worker.begin(fails)()
    assert worker.begin(lambda: "again")() == "again"
