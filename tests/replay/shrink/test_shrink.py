"""`reprise shrink`: what is left fails in the same way, is 1-minimal, and is a recording like any other."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner
from recorder.header import Header
from replay.__main__ import main
from replay.check import check
from replay.execute import execute
from replay.lives import Run
from replay.model_runs.open_model import OpenedRunner, Overrides
from replay.shrink.ddmin import without_one
from replay.shrink.evidence import evidences_of
from replay.shrink.predicates import parse
from replay.shrink.scenario import scenario_of
from replay.shrink.shrink import Shrunk, setting_for, shrink
from replay.shrink.trial import Setting, Trial
from tests.replay.recorded_runs import SCRIPTED_CLASS, mixed_load, open_scripted, record_run


def shrunk(recording: Path, setting: Setting, target: Path, num_jobs: int = 1, time_limit_s: float = 0.0) -> Shrunk:
    found = shrink(recording, setting, target, num_jobs=num_jobs, time_limit_s=time_limit_s)
    assert found is not None
    return found


def fails(setting: Setting, path: Path, leave_out: int | None = None) -> bool:
    (life,) = Run.open(path).lives
    scenario = scenario_of(life, lambda refusal: None, with_contents=setting.uses_model)
    if leave_out is not None:
        scenario = scenario.only(tuple(without_one(scenario.callers)[leave_out]))
    return Trial(setting).attempt(scenario).finding is not None


def test_a_preemption_needs_two_requests_and_a_small_pool(recording: Path, tmp_path: Path) -> None:
    setting = setting_for("preempted-more-than:0", has_vault=True)
    found = shrunk(recording, setting, tmp_path / "small")
    assert len(found.before.callers) == 48
    assert len(found.after.callers) == 2
    assert found.is_minimal
    assert not found.is_cut_short
    assert check(tmp_path / "small").exit_code == 0
    assert parse("preempted-more-than:0").holds(tmp_path / "small")
    assert fails(setting, tmp_path / "small")
    assert not any(fails(setting, tmp_path / "small", place) for place in range(2))


def test_any_number_of_processes_finds_the_same(tmp_path: Path) -> None:
    few = record_run(tmp_path / "few", mixed_load(12))
    setting = setting_for("ttft-above:20", has_vault=False)
    alone = shrunk(few, setting, tmp_path / "one")
    together = shrunk(few, setting, tmp_path / "two", num_jobs=2)
    assert alone.after == together.after


class Contaminating(ScriptedRunner):
    """A prefill of more than ten tokens beside another row spoils the other's first slot."""

    def execute(self, plan: StepPlanned) -> StepResult:
        if len(plan.rows) > 1 and max(count for _request, _start, count in plan.rows) > 10:
            victim = self._requests[min(plan.rows, key=lambda row: row[2])[0]]
            self.slots[self._slot(victim, 0)] += 1
        return super().execute(plan)


def open_contaminating(header: Header, overrides: Overrides) -> OpenedRunner:
    limits = Limits.from_dict(header.limits)
    runner = Contaminating(limits.num_kv_blocks, limits.block_size, header.salt)
    return OpenedRunner(runner, SCRIPTED_CLASS, {"backend": "scripted"})


def test_a_foreign_token_needs_its_victim_and_its_writer(tmp_path: Path) -> None:
    limits = Limits(block_size=4, num_kv_blocks=64, max_model_len=96, max_num_seqs=6, max_num_batched_tokens=32)
    runner = Contaminating(limits.num_kv_blocks, limits.block_size, bytes(range(16)))
    recording = record_run(tmp_path / "run", mixed_load(20), limits=limits, runner=runner)
    setting = replace(setting_for("isolation-differs", has_vault=True), open_runner=open_contaminating)
    found = shrunk(recording, setting, tmp_path / "small")
    assert len(found.after.callers) == 2
    assert found.is_minimal
    assert found.finding.request in [caller.number for caller in found.after.callers]
    assert execute(tmp_path / "small", open_runner=open_contaminating).exit_code == 0, "the contents went along"
    (evidence,) = evidences_of(tmp_path / "small", with_contents=True)
    assert evidence.contents is not None
    assert evidence.header.origin == "shrunk"


def test_a_time_limit_ends_it_with_what_it_has(recording: Path, tmp_path: Path) -> None:
    setting = setting_for("preempted-more-than:0", has_vault=False)
    found = shrunk(recording, setting, tmp_path / "cut", time_limit_s=1e-9)
    assert found.is_cut_short
    assert not found.is_minimal
    assert len(found.after.callers) == 48
    assert parse("preempted-more-than:0").holds(tmp_path / "cut")


def test_an_answer_is_found_by_its_text(recording: Path, tmp_path: Path) -> None:
    setting = replace(setting_for("output-contains: 7", has_vault=True), open_runner=open_scripted)
    found = shrunk(recording, setting, tmp_path / "small")
    assert len(found.after.callers) == 1
    assert found.after.callers[0].arrived.num_prompt_tokens < 20


def test_the_verb_says_what_is_left_and_exits_with_1(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "small"
    arguments = ["shrink", str(recording), "--fails-with", "preempted-more-than:0", "-o", str(target), "--jobs", "1"]
    assert main(arguments) == 1
    told = capsys.readouterr().out
    assert "requests 48 → 2" in told
    assert "1-minimal" in told
    assert main([*arguments]) == 2, "the folder exists"
    assert "exists already" in capsys.readouterr().err
    arguments[5] = str(tmp_path / "other")
    assert main([*arguments, "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["after"]["requests"] == len(values["requests"]) == 2


def test_what_does_not_fail_is_said_with_0_and_nothing_is_written(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "small"
    assert main(["shrink", str(recording), "--fails-with", "engine-dies:", "-o", str(target)]) == 2
    assert main(["shrink", str(recording), "--fails-with", "ttft-above:1e9", "-o", str(target), "--jobs", "1"]) == 0
    assert "does not fail" in capsys.readouterr().out
    assert not target.exists()


class Forgetful(Core):
    """Dies of the third request that is live at one time."""

    def handle(self, event: object, now_ns: int) -> list[object]:  # type: ignore[override]  # as the core's own
        decisions: Sequence[object] = super().handle(event, now_ns)  # type: ignore[arg-type]  # passed on
        if len(self.requests) == 3:
            raise AssertionError("a third one")
        return list(decisions)


def test_what_an_engine_dies_of_is_shrunk_to_those_it_died_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_run(tmp_path / "run", mixed_load(12))
    monkeypatch.setattr("replay.shrink.trial.recorded_core", lambda header: Forgetful(Limits.from_dict(header.limits)))
    found = shrunk(tmp_path / "run", Setting("engine-dies", uses_model=False), tmp_path / "small")
    assert len(found.after.callers) == 3
    assert found.finding.text == "the engine dies: AssertionError: a third one"


def test_a_prompt_cut_short_keeps_what_it_shares() -> None:
    from engine.core.events import RequestArrived
    from replay.shrink.reductions import shorter_prompts
    from replay.shrink.scenario import Caller, Scenario

    digests = tuple(bytes([index]) * 16 for index in range(5))
    arrived = RequestArrived(0, "a", "", 0, 0, 22, 9, digests, SamplingParams())
    caller = Caller(arrived, 0, contents=RequestContents(tuple(range(22))))
    scenario = Scenario(Header(salt=bytes(16)), Limits(block_size=4), (caller,))
    for shorter in shorter_prompts(scenario, 0):
        (cut,) = shorter.callers
        assert cut.contents is not None
        length = len(cut.contents.prompt_token_ids)
        assert cut.arrived.num_prompt_tokens == length < 22
        assert cut.arrived.prompt_digests == digests[: length // 4]
