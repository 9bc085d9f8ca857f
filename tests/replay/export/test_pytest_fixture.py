"""An exported test is red on the build that fails, and green on the one that does not; its fixture tells nothing."""

import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core import kv_cache
from engine.core.decisions import Decision, RequestAdmitted, RequestPreempted
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.execution.runner import ModelRunner
from replay.export.pytest_fixture import MAX_FIXTURE_BYTES, export_test
from replay.export.served_again import finding_in
from replay.lives import Run
from replay.refusal import CannotCompare
from replay.shrink import trial
from tests.replay.recorded_runs import LIMITS, mixed_load, record_run


def run_exported(folder: Path) -> None:
    """Its one test, in this process, where builds can be bad."""
    (path,) = folder.glob("test_*.py")
    (test,) = [function for name, function in runpy.run_path(str(path)).items() if name.startswith("test_")]
    test()


def leak_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build whose pool loses a block when six are released at once, the first time."""
    sound = kv_cache.BlockPool.release

    def leaky(pool: kv_cache.BlockPool, blocks: list[int]) -> int:
        freed = sound(pool, blocks)
        if len(blocks) >= 6 and pool._free and not hasattr(pool, "_has_leaked"):
            pool._has_leaked = True  # type: ignore[attr-defined]  # of the bad build only
            pool._free.pop()
        return freed

    monkeypatch.setattr(kv_cache.BlockPool, "release", leaky)


def test_a_broken_invariant_becomes_a_test_that_is_red_there_and_green_when_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bad_build:
        leak_a_block(bad_build)
        recording = record_run(tmp_path / "Night of 3 a.m", mixed_load(24), record_content=False)
        exported = export_test(recording, tmp_path / "tests")
        fixture = Path(exported["fixture"])
        assert "a block is lost" in exported["finding"]
        assert exported["fixture_bytes"] == fixture.stat().st_size <= MAX_FIXTURE_BYTES
        with pytest.raises(AssertionError, match="a block is lost"):
            run_exported(tmp_path / "tests")
    run_exported(tmp_path / "tests")  # and green on the fixed one
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "tests",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in ran.stdout, ran.stdout


def test_a_predicate_makes_the_test_and_a_policy_that_avoids_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = record_run(tmp_path / "run", mixed_load(24), record_content=False)
    exported = export_test(recording, tmp_path / "tests", "preempted-more-than:0")
    assert "is preempted" in exported["finding"]
    fixture = Path(exported["fixture"])
    assert finding_in(fixture, "preempted-more-than:0") is not None
    with pytest.raises(AssertionError, match="is preempted"):
        run_exported(tmp_path / "tests")

    def roomy(core: Core, limits: Limits, *rest: object) -> None:
        sound(core, replace(limits, num_kv_blocks=500), *rest)  # type: ignore[arg-type]  # handed on as it came

    sound = Core.__init__
    monkeypatch.setattr(Core, "__init__", roomy)
    assert finding_in(fixture, "preempted-more-than:0") is None, "a build that does not preempt passes"


def test_a_sound_recording_becomes_a_test_of_equal_decisions(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run", mixed_load(10), record_content=False)
    exported = export_test(recording, tmp_path / "tests")
    assert exported["finding"] == ""
    run_exported(tmp_path / "tests")
    with pytest.raises(CannotCompare, match="does not hold"):
        export_test(recording, tmp_path / "other", "thrashing")


def test_a_fixture_holds_neither_names_nor_contents(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run", mixed_load(10))
    fixture = Path(export_test(recording, tmp_path / "tests")["fixture"])
    names = [
        entry.event.request_id
        for entry in Run.open(fixture).lives[0].entries()
        if isinstance(entry.event, RequestArrived)
    ]
    assert names
    assert all(name.startswith("request-") for name in names)
    assert sorted(path.suffix for path in (tmp_path / "tests").iterdir()) == [".py", ".rps"]


def test_what_is_too_large_for_a_test_is_to_be_shrunk_first(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run", mixed_load(150), limits=replace(LIMITS, max_num_queued_reqs=400))
    with pytest.raises(CannotCompare, match="50,000") as refused:
        export_test(recording, tmp_path / "tests")
    assert "reprise shrink" in refused.value.remedy
    assert not (tmp_path / "tests").exists()


def test_a_predicate_about_tokens_is_refused(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run", mixed_load(4))
    with pytest.raises(CannotCompare, match="need the model's weights"):
        export_test(recording, tmp_path / "tests", "output-contains:hello")


def keep_old_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build whose runner goes on with the blocks that a request had before it was preempted."""
    sound = ModelRunner.carry_out

    def stale(runner: ModelRunner, decision: Decision) -> None:
        held = runner._requests.get(getattr(decision, "request", -1))
        old_table = list(held.block_table) if held else []
        sound(runner, decision)
        if held is None or not old_table:
            return
        if isinstance(decision, RequestPreempted):
            held.block_table = old_table
        elif isinstance(decision, RequestAdmitted):
            held.block_table = old_table + held.block_table[len(old_table) :]

    monkeypatch.setattr(ModelRunner, "carry_out", stale)


def test_a_fault_in_what_is_done_with_decisions_is_seen_without_weights_or_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bad_build:
        keep_old_tables(bad_build)
        recording = record_run(tmp_path / "run", mixed_load(14), record_content=False)
        exported = export_test(recording, tmp_path / "tests", "isolation-differs")
        assert "differs alone" in exported["finding"]
        with pytest.raises(AssertionError, match="differs alone"):
            run_exported(tmp_path / "tests")
    run_exported(tmp_path / "tests")
    with pytest.raises(CannotCompare, match="does not hold"):
        export_test(recording, tmp_path / "other", "isolation-differs")


def test_what_depends_on_a_real_clock_is_served_at_its_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(trial, "sleep", slept.append)
    recording = record_run(tmp_path / "run", mixed_load(6), record_content=False)
    export_test(recording, tmp_path / "tests", "preempted-more-than:-1", at_pace=True)
    text = next((tmp_path / "tests").glob("test_*.py")).read_text("utf-8")
    assert "at_pace=True" in text
    slept.clear()
    with pytest.raises(AssertionError, match="is preempted"):
        run_exported(tmp_path / "tests")
    assert sum(slept) > 0


def test_an_admission_that_hits_what_was_never_written_is_seen_in_the_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core's own invariants hold; the decisions alone show it."""
    sound = Core.handle

    def lying(core: Core, event: object, now_ns: int) -> list[object]:
        decisions = sound(core, event, now_ns)  # type: ignore[arg-type]  # handed on as it came
        return [
            d._replace(num_hit_blocks=len(d.block_ids)) if isinstance(d, RequestAdmitted) and d.request == 0 else d
            for d in decisions
        ]

    with monkeypatch.context() as bad_build:
        bad_build.setattr(Core, "handle", lying)
        recording = record_run(tmp_path / "run", mixed_load(12), record_content=False)
        fixture = Path(export_test(recording, tmp_path / "tests")["fixture"])
        assert finding_in(fixture) is not None
    assert finding_in(fixture) is None
