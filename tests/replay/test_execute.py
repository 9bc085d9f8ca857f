"""`reprise execute`: recorded plans, executed again, give the recorded tokens and digests, or a divergence."""

import json
from pathlib import Path

import pytest

from engine.core.decisions import RequestAdmitted, RequestFinished, RequestPreempted, StepPlanned
from engine.core.events import RequestArrived, StepCompleted, StepFailed
from engine.core.vocabulary import Entry, RecordingClosed
from recorder.errors import NoContents
from recorder.header import Header
from replay.__main__ import main
from replay.diff.diff import diff
from replay.divergence import Classification, EmittedToken
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.open_model import OpenedRunner, Overrides
from replay.model_runs.reexecution import FilledBlock, PromptDigest
from replay.refusal import CannotCompare
from tests.replay.faults import FaultyRunner, OtherClassRunner, overwrite_a_slot_in_step
from tests.replay.recorded_runs import (
    LIMITS,
    SALT,
    SCRIPTED_CLASS,
    changed_decision,
    entries_of,
    mixed_load,
    open_scripted,
    record_run,
    rewrite,
)


def test_an_honest_recording_executes_equal_and_what_was_compared_is_counted(recording: Path) -> None:
    entries = entries_of(recording)
    decisions = [decision for entry in entries for decision in entry.decisions]
    steps = [entry.event for entry in entries if isinstance(entry.event, StepCompleted)]
    verdict = execute(recording, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()
    figures = verdict.figures
    assert figures["steps"] == len(steps)
    assert figures["tokens"] == figures["hidden_digests"] == sum(len(step.emitted) for step in steps) > 100
    assert figures["preemptions"] == sum(type(it) is RequestPreempted for it in decisions) >= 5
    assert figures["cancels"] == sum(isinstance(it, RequestFinished) and it.reason == "cancelled" for it in decisions)
    assert figures["cancels"] >= 3
    assert figures["hit_blocks"] == sum(it.num_hit_blocks for it in decisions if isinstance(it, RequestAdmitted)) >= 5
    arrived = [entry.event for entry in entries if isinstance(entry.event, RequestArrived)]
    filled = sum(len(step.filled) for step in steps)
    assert figures["block_digests"] <= filled + sum(len(event.prompt_digests) for event in arrived)
    assert figures["block_digests"] > filled


def test_what_comes_out_is_a_recording_of_its_own_that_differs_in_nothing(recording: Path, tmp_path: Path) -> None:
    verdict = execute(recording, open_runner=open_scripted, record_dir=tmp_path / "replay")
    assert verdict.exit_code == 0, verdict.as_text()
    replayed = [entry for entry in entries_of(tmp_path / "replay") if not isinstance(entry.event, RecordingClosed)]
    assert replayed == [entry for entry in entries_of(recording) if not isinstance(entry.event, RecordingClosed)]
    assert execute(tmp_path / "replay", open_runner=open_scripted).figures["tokens"] == verdict.figures["tokens"]
    assert diff(recording, tmp_path / "replay").is_served_alike


def test_a_replay_that_differs_is_recorded_as_far_as_its_first_other_result(recording: Path, tmp_path: Path) -> None:
    plan = _a_shared_step(recording)

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(FaultyRunner(overwrite_a_slot_in_step(plan.step)), SCRIPTED_CLASS, {})

    verdict = execute(recording, open_runner=open_runner, record_dir=tmp_path / "replay")
    (divergence,) = verdict.divergences
    replayed, recorded = entries_of(tmp_path / "replay"), entries_of(recording)
    last = max(entry.sequence for entry in replayed if isinstance(entry.event, StepCompleted))
    assert last == divergence.place.sequence
    assert replayed[:last] == recorded[:last]
    event = replayed[last].event
    assert isinstance(event, StepCompleted)
    assert event.step == divergence.place.step
    assert event != recorded[last].event


def test_a_replay_of_several_engine_processes_is_not_recorded(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", mixed_load(4))
    record_run(run, mixed_load(4, seed=1))
    with pytest.raises(CannotCompare, match="holds 2"):
        execute(run, open_runner=open_scripted, record_dir=tmp_path / "replay")
    assert not (tmp_path / "replay").exists()


def test_every_life_of_the_engine_is_executed_on_a_fresh_runner(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", mixed_load(8))
    record_run(run, mixed_load(8, seed=1))
    opened: list[Header] = []

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        opened.append(header)
        return open_scripted(header, overrides)

    verdict = execute(run, open_runner=open_runner)
    assert verdict.exit_code == 0, verdict.as_text()
    assert [header.starts_fresh for header in opened] == [True, True]


def _a_shared_step(path: Path) -> StepPlanned:
    """A step in which several requests decode, late enough that blocks have been used before."""
    plans = [it for entry in entries_of(path) for it in entry.decisions if isinstance(it, StepPlanned)]
    return next(plan for plan in plans[50:] if len(plan.rows) > 1 and all(count == 1 for *_, count in plan.rows))


def test_an_overwritten_slot_is_found_at_the_first_wrong_token(recording: Path) -> None:
    plan = _a_shared_step(recording)
    victim = plan.rows[-1][0]

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(FaultyRunner(overwrite_a_slot_in_step(plan.step)), SCRIPTED_CLASS, {})

    verdict = execute(recording, open_runner=open_runner)
    assert verdict.exit_code == 1
    (divergence,) = verdict.divergences
    assert divergence.place.step == plan.step
    assert divergence.place.request == victim
    assert isinstance(divergence.expected, EmittedToken)
    assert divergence.classification is Classification.TOKENS
    assert divergence.next_command == f"reprise isolate {recording} {victim}"
    assert "> token_id" in verdict.as_text()


def test_other_bits_of_the_same_token_are_numeric(recording: Path) -> None:
    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(OtherClassRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT), SCRIPTED_CLASS, {})

    (divergence,) = execute(recording, open_runner=open_runner).divergences
    assert divergence.classification is Classification.NUMERIC
    assert [difference.field for difference in divergence.differences] == ["hidden_digest"]


def test_another_numerics_class_is_refused_in_advance_with_both_names(recording: Path) -> None:
    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        runner = OtherClassRunner(LIMITS.num_kv_blocks, LIMITS.block_size, SALT)
        return OpenedRunner(runner, "other-7", {"backend": "other"})

    with pytest.raises(CannotCompare, match=f"{SCRIPTED_CLASS} was recorded.*other-7.*backend: recorded scripted"):
        execute(recording, open_runner=open_runner)
    verdict = execute(recording, allow_numeric_drift=True, open_runner=open_runner)
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.figures["tokens"] > 100
    assert verdict.figures["hidden_digests"] == 0
    assert any("only tokens are compared" in note for note in verdict.notes)


def test_without_contents_it_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = record_run(tmp_path / "run", mixed_load(4), record_content=False)
    with pytest.raises(NoContents):
        execute(run, open_runner=open_scripted)
    assert main(["execute", str(run), "--json"]) == 2
    captured = capsys.readouterr()
    assert "--record-content" in captured.err
    assert "--record-content" in json.loads(captured.out)["reason"]


def test_a_step_that_raises_only_now_is_a_divergence(recording: Path) -> None:
    def fail(runner: FaultyRunner, plan: StepPlanned) -> None:
        if plan.step == 20:
            raise MemoryError("no memory for step 20")

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(FaultyRunner(fail), SCRIPTED_CLASS, {})

    verdict = execute(recording, open_runner=open_runner)
    assert verdict.exit_code == 1
    assert verdict.divergences[0].place.step == 20
    assert "MemoryError: no memory for step 20" in verdict.as_text()


def test_steps_that_failed_when_recorded_are_counted_and_the_rest_is_equal(tmp_path: Path) -> None:
    def fail(runner: FaultyRunner, plan: StepPlanned) -> None:
        if plan.step in (10, 30):
            raise ValueError("kernel error")

    run = record_run(tmp_path / "run", mixed_load(24), runner=FaultyRunner(fail))
    assert sum(isinstance(entry.event, StepFailed) for entry in entries_of(run)) == 2
    verdict = execute(run, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()
    assert any("2 steps failed when recorded" in note for note in verdict.notes)


def test_a_prompt_that_is_not_the_one_that_arrived_is_found(recording: Path, tmp_path: Path) -> None:
    def other_digest(entries: list[Entry]) -> list[Entry]:
        number = next(n for n, entry in enumerate(entries) if n >= 12 and isinstance(entry.event, RequestArrived))
        event = entries[number].event
        assert isinstance(event, RequestArrived)
        digests = (event.prompt_digests[0], b"\0" * 16, *event.prompt_digests[2:])
        changed = entries[number]._replace(event=event._replace(prompt_digests=digests))
        return [*entries[:number], changed, *entries[number + 1 :]]

    (divergence,) = execute(
        rewrite(recording, tmp_path / "changed", other_digest), open_runner=open_scripted
    ).divergences
    assert isinstance(divergence.expected, PromptDigest)
    assert divergence.expected.block_index == 1


def test_a_block_filled_with_something_else_is_found(recording: Path, tmp_path: Path) -> None:
    def other_filled(entries: list[Entry]) -> list[Entry]:
        for number, entry in enumerate(entries):
            if isinstance(entry.event, StepCompleted) and entry.event.filled:
                filled = ((entry.event.filled[0][0], b"\1" * 16), *entry.event.filled[1:])
                changed = entry._replace(event=entry.event._replace(filled=filled))
                return [*entries[:number], changed, *entries[number + 1 :]]
        raise AssertionError("no block was filled")

    (divergence,) = execute(
        rewrite(recording, tmp_path / "changed", other_filled), open_runner=open_scripted
    ).divergences
    assert isinstance(divergence.expected, FilledBlock)


def test_a_row_that_one_side_did_not_emit_is_structural(recording: Path, tmp_path: Path) -> None:
    def drop_a_row(entries: list[Entry]) -> list[Entry]:
        for number, entry in enumerate(entries):
            if isinstance(entry.event, StepCompleted) and len(entry.event.emitted) > 1:
                event = entry.event._replace(emitted=entry.event.emitted[:-1])
                return [*entries[:number], entry._replace(event=event), *entries[number + 1 :]]
        raise AssertionError("no step emitted two tokens")

    (divergence,) = execute(rewrite(recording, tmp_path / "changed", drop_a_row), open_runner=open_scripted).divergences
    assert divergence.classification is Classification.STRUCTURAL
    assert divergence.expected is None
    assert isinstance(divergence.got, EmittedToken)


def test_a_torn_recording_executes_equal_up_to_the_tear(recording: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.mkdir()
    for name, share in (("000001.rpr", 0.6), ("000001.vault", 0.99)):
        data = (recording / name).read_bytes()
        (torn / name).write_bytes(data[: int(len(data) * share)])
    verdict = execute(torn, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()
    assert 50 < verdict.figures["steps"] < 200
    assert any("bytes from offset" in note for note in verdict.notes)


def test_behind_an_arrival_whose_prompt_is_lost_nothing_is_compared(recording: Path, tmp_path: Path) -> None:
    cut = rewrite(recording, tmp_path / "cut", lambda entries: entries)
    data = (cut / "000001.vault").read_bytes()
    (cut / "000001.vault").write_bytes(data[: len(data) // 3])
    verdict = execute(cut, open_runner=open_scripted)
    assert verdict.exit_code == 2
    assert verdict.refusal is not None
    assert "the vault holds no prompt" in verdict.refusal.reason
    assert verdict.figures["steps"] > 5


def test_a_vault_cut_short_leaves_the_digests_to_compare(recording: Path, tmp_path: Path) -> None:
    cut = rewrite(recording, tmp_path / "cut", lambda entries: entries)
    data = (cut / "000001.vault").read_bytes()
    (cut / "000001.vault").write_bytes(data[: len(data) - 200])
    verdict = execute(cut, open_runner=open_scripted)
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.figures["hidden_digests"] > verdict.figures["tokens"]
    assert any("tokens are not in the vault" in note for note in verdict.notes)


def test_a_decision_about_a_request_that_never_arrived_is_a_divergence(recording: Path, tmp_path: Path) -> None:
    entries, sequence, _ = changed_decision(
        entries_of(recording), RequestAdmitted, lambda it: it._replace(request=4711), occurrence=3
    )
    changed = rewrite(recording, tmp_path / "changed", lambda _: entries)
    verdict = execute(changed, open_runner=open_scripted)
    assert verdict.exit_code == 1
    assert verdict.divergences[0].place.sequence == sequence
    with pytest.raises(CannotCompare, match="request 4711, which never arrived"):
        isolate(changed, None, open_runner=open_scripted)


def test_a_failed_self_test_is_told_in_advance(recording: Path) -> None:
    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return open_scripted(header, overrides)._replace(environment={"p4_holds": False})

    verdict = execute(recording, open_runner=open_runner)
    assert any("self-test failed here" in note for note in verdict.notes)
