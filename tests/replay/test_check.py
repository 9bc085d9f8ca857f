"""`reprise check`: equal recordings are equal, and every kind of difference is found where it is."""

import json
from pathlib import Path

import pytest

from engine.core.decisions import FinishReason, RequestAdmitted, RequestFinished, RequestPreempted, StepPlanned
from engine.core.events import StepCompleted
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry, RecordingGap, UnknownRecord
from replay.__main__ import main
from replay.check import check
from replay.verdict import Outcome
from tests.replay.recorded_runs import changed_decision, entries_of, mixed_load, record_run, rewrite


def test_an_honest_recording_is_equal_and_what_was_compared_is_counted(recording: Path) -> None:
    decisions = [decision for entry in entries_of(recording) for decision in entry.decisions]
    assert sum(type(decision) is RequestPreempted for decision in decisions) >= 5
    assert sum(decision.num_hit_blocks for decision in decisions if isinstance(decision, RequestAdmitted)) >= 5
    verdict = check(recording)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    assert verdict.figures["decisions"] == len(decisions)
    assert verdict.figures["steps"] == sum(type(decision) is StepPlanned for decision in decisions) > 50


def test_a_run_over_many_segments_is_checked_as_one(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", mixed_load(16), max_segment_bytes=4096)
    assert len(list(run.glob("*.rpr"))) > 3
    assert check(run).exit_code == 0


def test_every_life_of_the_engine_is_checked_from_an_empty_core(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", mixed_load(8))
    record_run(run, mixed_load(8, seed=1))
    verdict = check(run)
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.figures["entries"] == len([entry for entry in entries_of(run) if entry.decisions or entry.event]) - 2


def test_one_changed_decision_is_named_with_both_sides(recording: Path, tmp_path: Path) -> None:
    entries, sequence, index = changed_decision(
        entries_of(recording), RequestAdmitted, lambda it: it._replace(num_blocks_free=777), occurrence=9
    )
    changed = rewrite(recording, tmp_path / "changed", lambda _: entries)
    verdict = check(changed)
    assert verdict.exit_code == 1
    (divergence,) = verdict.divergences
    assert (divergence.place.sequence, divergence.place.record_index) == (sequence, index)
    assert type(divergence.expected) is type(divergence.got) is RequestAdmitted
    (difference,) = divergence.differences
    assert (difference.field, difference.expected) == ("num_blocks_free", 777)
    assert difference.got == divergence.got.num_blocks_free < 777
    text = verdict.as_text()
    assert f"sequence {sequence}" in text
    assert "> num_blocks_free" in text
    assert f"reprise show {changed} --transcript --around {sequence}" in text
    assert all(len(line) <= 120 or line.startswith("  next ") for line in text.splitlines())


def test_the_entries_before_a_divergence_are_shown(recording: Path, tmp_path: Path) -> None:
    entries, sequence, _ = changed_decision(
        entries_of(recording), RequestFinished, lambda it: it._replace(num_preemptions=9), occurrence=5
    )
    (divergence,) = check(rewrite(recording, tmp_path / "changed", lambda _: entries)).divergences
    for before in range(sequence - 5, sequence):
        assert any(line.split()[0] == str(before) for line in divergence.before)


def test_a_difference_inside_a_long_field_is_named_by_its_item(recording: Path, tmp_path: Path) -> None:
    def shift_last_row(planned: StepPlanned) -> StepPlanned:
        request, start, count = planned.rows[-1]
        return planned._replace(rows=(*planned.rows[:-1], (request, start + 1, count)))

    entries, _, _ = changed_decision(entries_of(recording), StepPlanned, shift_last_row, occurrence=40)
    (divergence,) = check(rewrite(recording, tmp_path / "changed", lambda _: entries)).divergences
    assert [difference.field for difference in divergence.differences] == [f"rows[{len(divergence.got.rows) - 1}]"]


def test_a_recorded_decision_that_is_not_made_again_is_a_divergence(recording: Path, tmp_path: Path) -> None:
    def add_one(entries: list[Entry]) -> list[Entry]:
        extra = RequestFinished(1, FinishReason.STOP, 0, 0, 0, 0, 0)
        return [*entries[:30], entries[30]._replace(decisions=(*entries[30].decisions, extra)), *entries[31:]]

    (divergence,) = check(rewrite(recording, tmp_path / "changed", add_one)).divergences
    assert divergence.place.sequence == 30
    assert isinstance(divergence.expected, RequestFinished)
    assert divergence.got is None


def test_a_decision_that_was_not_recorded_is_a_divergence(recording: Path, tmp_path: Path) -> None:
    def drop_last(entries: list[Entry]) -> list[Entry]:
        entry = entries[30]
        assert type(entry.decisions[-1]) is StepPlanned
        return [*entries[:30], entry._replace(decisions=entry.decisions[:-1]), *entries[31:]]

    verdict = check(rewrite(recording, tmp_path / "changed", drop_last))
    (divergence,) = verdict.divergences
    assert divergence.place.sequence == 30
    assert divergence.expected is None
    assert isinstance(divergence.got, StepPlanned)
    assert "one more" in verdict.as_text()


def test_an_event_that_the_core_refuses_is_a_divergence(recording: Path, tmp_path: Path) -> None:
    def repeat_a_step(entries: list[Entry]) -> list[Entry]:
        steps = [number for number, entry in enumerate(entries) if hasattr(entry.event, "execute_ns")]
        first, second = steps[4], steps[5]
        return [*entries[:second], entries[second]._replace(event=entries[first].event), *entries[second + 1 :]]

    verdict = check(rewrite(recording, tmp_path / "changed", repeat_a_step))
    assert verdict.exit_code == 1
    assert "NonDeterministicCore" in verdict.as_text()


def test_a_core_with_another_rule_is_found_out(recording: Path) -> None:
    class Forgetful(Core):
        """Never finds a prefix again."""

        def __init__(self, limits: Limits) -> None:
            super().__init__(Limits.from_dict({**limits.to_dict(), "enable_prefix_caching": False}))

    verdict = check(recording, make_core=Forgetful)
    assert verdict.exit_code == 1
    (divergence,) = verdict.divergences
    assert isinstance(divergence.expected, RequestAdmitted)
    assert "num_hit_blocks" in [difference.field for difference in divergence.differences]


def test_a_torn_tail_is_equal_up_to_the_tear_and_the_loss_is_told(recording: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.mkdir()
    data = (recording / "000001.rpr").read_bytes()
    (torn / "000001.rpr").write_bytes(data[: len(data) * 2 // 3])
    verdict = check(torn)
    assert verdict.exit_code == 0
    assert 0 < verdict.figures["entries"] < len(entries_of(recording))
    assert any("bytes from offset" in note for note in verdict.notes)


def _with_gap(entries: list[Entry]) -> list[Entry]:
    gap = Entry(40, entries[49].now_ns, RecordingGap(40, 10, "the disk was full"), ())
    return [*entries[:40], gap, *entries[50:]]


def test_behind_a_gap_nothing_can_be_compared(recording: Path, tmp_path: Path) -> None:
    verdict = check(rewrite(recording, tmp_path / "gap", _with_gap))
    assert verdict.exit_code == 2
    assert verdict.figures["entries"] == 40
    assert verdict.refusal is not None
    assert "10 entries from sequence 40 on are missing" in verdict.refusal.reason
    assert "the disk was full" in verdict.refusal.reason


def test_a_divergence_before_a_gap_is_still_a_divergence(recording: Path, tmp_path: Path) -> None:
    entries, _, _ = changed_decision(entries_of(recording), StepPlanned, lambda it: it._replace(num_running=99))
    assert check(rewrite(recording, tmp_path / "gap", lambda _: _with_gap(entries))).exit_code == 1


def test_a_hole_without_a_notice_is_a_gap_too(recording: Path, tmp_path: Path) -> None:
    verdict = check(rewrite(recording, tmp_path / "hole", lambda entries: [*entries[:40], *entries[43:]]))
    assert verdict.exit_code == 2
    assert verdict.figures["entries"] == 40


def test_a_record_of_a_newer_version_is_refused_not_misread(recording: Path, tmp_path: Path) -> None:
    def add_unknown(entries: list[Entry]) -> list[Entry]:
        entry = entries[20]
        return [*entries[:20], entry._replace(decisions=(*entry.decisions, UnknownRecord(190, (1, 2)))), *entries[21:]]

    verdict = check(rewrite(recording, tmp_path / "newer", add_unknown))
    assert verdict.exit_code == 2
    assert verdict.refusal is not None
    assert "kind 190" in verdict.refusal.reason


def test_a_segment_from_mid_run_is_refused_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = record_run(tmp_path / "run", mixed_load(16), max_segment_bytes=4096)
    assert main(["check", str(run / "000001.rpr")]) == 0
    assert main(["check", str(run / "000002.rpr")]) == 2
    assert f"give the whole run's folder, {run}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["missing", "empty", "garbage.rpr"])
def test_what_is_no_recording_is_refused_in_words(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage.rpr").write_bytes(b"no recording at all")
    for verb in (["show"], ["check"], ["execute"], ["isolate", "--all"]):
        assert main([*verb, str(tmp_path / name)]) == 2
        captured = capsys.readouterr()
        assert name in captured.err
        assert captured.out == ""


def test_the_result_as_json_says_the_same(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(recording), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == "equal"
    entries, sequence, _ = changed_decision(entries_of(recording), StepPlanned, lambda it: it._replace(num_running=99))
    assert main(["check", str(rewrite(recording, tmp_path / "changed", lambda _: entries)), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    (divergence,) = result["divergences"]
    assert divergence["sequence"] == sequence
    assert divergence["differences"][0]["field"] == "num_running"
    assert divergence["differences"][0]["expected"] == 99
    assert main(["check", str(tmp_path / "nowhere"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["result"] == "cannot_compare"


def test_a_core_that_broke_on_the_last_event_breaks_on_it_again(recording: Path, tmp_path: Path) -> None:
    """The engine records the event that broke its core, without decisions, and ends."""

    def broken_off(entries: list[Entry]) -> list[Entry]:
        number = next(n for n, entry in enumerate(entries) if n > 60 and isinstance(entry.event, StepCompleted))
        event = entries[number].event
        assert isinstance(event, StepCompleted)
        last = entries[number]._replace(event=event._replace(step=event.step + 5), decisions=())
        return [*entries[:number], last]

    verdict = check(rewrite(recording, tmp_path / "broken", broken_off))
    assert verdict.exit_code == 0, verdict.as_text()
    assert any("the core raised on the last event, as it did when recorded" in note for note in verdict.notes)
