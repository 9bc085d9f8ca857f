"""Recordings of an engine that keeps digests of its KV blocks: they check, execute and isolate, and faults are told."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from engine.core.contents import RequestContents
from engine.core.decisions import RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import AuditCompleted, KVMismatch, StepCompleted
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop
from engine.protocol import Arrive, Message
from engine.self_audit import SelfAudit
from recorder.header import Header
from recorder.writer import Recorder
from replay.check import check
from replay.divergence import Classification
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.open_model import OpenedRunner, Overrides
from replay.show import View, show
from tests.replay.recorded_runs import (
    LIMITS,
    SALT,
    SCRIPTED_CLASS,
    PlannedInbox,
    TickingClock,
    entries_of,
    make_header,
    mixed_load,
)


def make_runner(num_blocks: int = LIMITS.num_kv_blocks) -> ScriptedRunner:
    return ScriptedRunner(num_blocks, LIMITS.block_size, SALT, keeps_kv_digests=True)


def open_keeping(header: Header, overrides: Overrides) -> OpenedRunner:
    return OpenedRunner(make_runner(), SCRIPTED_CLASS, {"backend": "scripted"})


def record(
    directory: Path,
    messages: list[tuple[int, Message]],
    runner: ScriptedRunner | None = None,
    limits: Limits = LIMITS,
    rate: float = 1.0,
) -> Path:
    clock = TickingClock()
    recorder = Recorder(
        directory, make_header(limits), clock, record_content=True, max_segment_bytes=1 << 26, sync_interval_ms=1000
    )
    serving = runner or make_runner()
    audit = SelfAudit(rate, limits, make_runner, serving.watch)
    loop = EngineLoop(
        Core(limits), serving, clock, recorder, lambda entry, outputs: None, watch=serving.watch, audit=audit
    )
    with capture_logs():
        recorder.close(loop.serve(PlannedInbox(messages)))
    return directory


class Overwriting(ScriptedRunner):
    """When request 2 finds a block of the prefix cache, its first slot has been overwritten."""

    def carry_out(self, decision: object) -> None:
        if isinstance(decision, RequestAdmitted) and decision.request == 2 and decision.num_hit_blocks:
            self.slots[decision.block_ids[0] * LIMITS.block_size] = -7
        super().carry_out(decision)  # type: ignore[arg-type]  # a decision


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("sound") / "run", mixed_load(20))


@pytest.fixture(scope="module")
def overwritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompts = [tuple(range(1, 12)), tuple(range(100, 111)), (*range(1, 10), 77)]
    sampling = SamplingParams(seed=1, ignore_eos=True)
    messages: list[tuple[int, Message]] = [
        (step, Arrive(number, f"req-{number}", "", 0, 0, 8, sampling, RequestContents(prompt)))
        for number, (step, prompt) in enumerate(zip((0, 0, 10**6), prompts, strict=True))
    ]
    runner = Overwriting(LIMITS.num_kv_blocks, LIMITS.block_size, SALT, keeps_kv_digests=True)
    return record(tmp_path_factory.mktemp("overwritten") / "run", messages, runner)


def test_a_sound_recording_is_equal_in_all_ways(sound: Path) -> None:
    assert check(sound).exit_code == 0
    executed = execute(sound, open_runner=open_keeping)
    assert executed.exit_code == 0, executed.as_text()
    assert executed.figures["kv_digests"] > 50
    isolated = isolate(sound, None, open_runner=open_keeping)
    assert isolated.exit_code == 0, isolated.as_text()


def test_a_block_that_was_written_otherwise_is_the_divergence(sound: Path) -> None:
    class Other(ScriptedRunner):
        def execute(self, plan: StepPlanned) -> StepResult:
            result = super().execute(plan)
            changed = tuple([(*block[:2], block[2] ^ (plan.step > 3)) for block in result.completed.kv_digests])
            return result._replace(completed=result.completed._replace(kv_digests=changed))

    def open_other(header: Header, overrides: Overrides) -> OpenedRunner:
        runner = Other(LIMITS.num_kv_blocks, LIMITS.block_size, SALT, keeps_kv_digests=True)
        return OpenedRunner(runner, SCRIPTED_CLASS, {"backend": "scripted"})

    (divergence,) = execute(sound, open_runner=open_other).divergences
    assert type(divergence.expected).__name__ == "KVBlock"
    assert divergence.place.step > 3
    assert "keys and values" in divergence.likely_cause


def test_a_recording_with_a_mismatch_replays_equal(overwritten: Path) -> None:
    """Live the fault did no harm: request 2 was computed again before it read the block."""
    assert [event for event in all_events(overwritten) if isinstance(event, KVMismatch)]
    assert check(overwritten).exit_code == 0
    executed = execute(overwritten, open_runner=open_keeping)
    assert executed.exit_code == 0, executed.as_text()
    isolated = isolate(overwritten, None, open_runner=open_keeping)
    assert isolated.exit_code == 0, isolated.as_text()
    assert all(event.result == "equal" for event in all_events(overwritten) if isinstance(event, AuditCompleted))
    assert sum(isinstance(d, RequestPreempted) for entry in entries_of(overwritten) for d in entry.decisions) == 1


class WrongSlot(ScriptedRunner):
    """Before request 0's third block is full, its first slot is overwritten."""

    def execute(self, plan: StepPlanned) -> StepResult:
        if plan.step == 1:
            self.slots[self._requests[0].block_table[2] * LIMITS.block_size] = -5
        return super().execute(plan)


def test_isolate_names_the_block_that_went_wrong(tmp_path: Path) -> None:
    sampling = SamplingParams(seed=1, ignore_eos=True)
    arrive = Arrive(0, "req-0", "", 0, 0, 8, sampling, RequestContents(tuple(range(1, 12))))
    runner = WrongSlot(LIMITS.num_kv_blocks, LIMITS.block_size, SALT, keeps_kv_digests=True)
    path = record(tmp_path / "run", [(0, arrive)], runner)
    (divergence,) = isolate(path, "req-0", open_runner=open_keeping).divergences
    assert divergence.expected.output_index == 1
    assert any(line.startswith("block 2 of its block table") for line in divergence.circumstances)
    (audit,) = [event for event in all_events(path) if isinstance(event, AuditCompleted)]
    assert (audit.first_difference, audit.first_block) == (1, 2)
    (mismatch,) = [event for event in all_events(path) if isinstance(event, KVMismatch)]
    assert (mismatch.noticed, mismatch.writer, mismatch.block_index) == ("audit", 0, 2)
    assert check(path).exit_code == 0


class WrongAtTheEnd(ScriptedRunner):
    """Digests the last block that request 0 fills as if something else lay in it; no token is drawn from it."""

    def execute(self, plan: StepPlanned) -> StepResult:
        result = super().execute(plan)
        wrong = tuple([(*block[:2], block[2] ^ (block[1] == 2)) for block in result.completed.kv_digests])
        return result._replace(completed=result.completed._replace(kv_digests=wrong))


def test_a_block_that_differs_is_a_divergence_where_all_tokens_are_equal(tmp_path: Path) -> None:
    sampling = SamplingParams(seed=1, ignore_eos=True)
    arrive = Arrive(0, "req-0", "", 0, 0, 2, sampling, RequestContents(tuple(range(1, 12))))
    runner = WrongAtTheEnd(LIMITS.num_kv_blocks, LIMITS.block_size, SALT, keeps_kv_digests=True)
    path = record(tmp_path / "run", [(0, arrive)], runner, rate=0.0)
    for request in ("req-0", None):
        verdict = isolate(path, request, open_runner=open_keeping)
        assert verdict.exit_code == 1, verdict.as_text()
        (divergence,) = verdict.divergences
        assert divergence.classification is Classification.NUMERIC
        assert (divergence.expected.block_index, divergence.place.step) == (2, 1)
        assert divergence.expected.kv_digest != divergence.got.kv_digest
        assert "2 of 2 output tokens were equal" in divergence.decided_on
        assert "kv_digest" in verdict.as_text()


def test_show_tells_of_mismatches_and_audits(overwritten: Path) -> None:
    at_large = "\n".join(show(overwritten, View()))
    assert "1 KV block" in at_large
    assert "3 audited" in at_large
    (told,) = [line for line in show(overwritten, View(request="req-2")) if "KVMismatch" in line]
    assert "noticed=hit" in told
    (audited,) = [line for line in show(overwritten, View(request="req-2")) if "AuditCompleted" in line]
    assert "equal" in audited
    (step,) = [line for line in show(overwritten, View(transcript=True)) if " 0   StepCompleted" in line]
    assert "kv=[0:0:" in step


def all_events(path: Path) -> list[object]:
    return [entry.event for entry in entries_of(path)]


def test_digests_stand_with_the_step_that_filled_the_block(sound: Path) -> None:
    filled = [event.kv_digests for event in all_events(sound) if isinstance(event, StepCompleted)]
    assert sum(map(len, filled)) > 50
