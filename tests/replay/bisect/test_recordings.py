"""`reprise bisect A B`: the first entry in which two recordings of the same arrivals differ."""

import dataclasses
import json
from pathlib import Path

import pytest

from engine.core.decisions import RequestAdmitted, StepPlanned
from engine.core.events import StepCompleted
from replay.bisect.halving import first_unequal
from replay.bisect.recordings import bisect_recordings
from replay.divergence import Classification
from replay.model_runs.open_model import Overrides
from replay.verdict import Verdict
from tests.replay.recorded_runs import (
    LIMITS,
    changed_decision,
    entries_of,
    mixed_load,
    open_scripted,
    record_run,
    rewrite,
)
from tests.replay.small_models import open_small, plans_of, reads_a_neighbours_block, record_small


def bisect(left: Path, right: Path) -> Verdict:
    return bisect_recordings(left, right, overrides=Overrides(), open_runner=open_scripted)


@pytest.mark.parametrize("num_equal", range(9))
def test_halving_finds_where_running_digests_part(num_equal: int) -> None:
    left = list(range(8))
    right = [number if number < num_equal else -number - 1 for number in range(8)]
    assert first_unequal(left, right) == (num_equal if num_equal < 8 else None)
    assert first_unequal(left, [*range(8), 9]) == 8


def test_two_runs_of_one_load_are_equal_whatever_their_clocks_said(recording: Path, tmp_path: Path) -> None:
    again = record_run(tmp_path / "again", mixed_load(48))
    slower = rewrite(
        again, tmp_path / "slower", lambda entries: [entry._replace(now_ns=entry.now_ns * 3) for entry in entries]
    )
    verdict = bisect(recording, slower)
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.figures["entries"] == len(entries_of(recording)) - 1  # less the notice of the end


def test_the_first_decision_that_differs_is_named_with_both_sides(recording: Path, tmp_path: Path) -> None:
    entries, sequence, index = changed_decision(
        entries_of(recording), StepPlanned, lambda plan: plan._replace(num_waiting=77), occurrence=40
    )
    later, _, _ = changed_decision(entries, RequestAdmitted, lambda it: it._replace(num_passes=99), occurrence=30)
    verdict = bisect(recording, rewrite(recording, tmp_path / "other", lambda _entries: later))
    assert verdict.exit_code == 1
    (divergence,) = verdict.divergences
    assert (divergence.place.sequence, divergence.place.record_index) == (sequence, index)
    assert [item.field for item in divergence.differences] == ["num_waiting"]
    assert divergence.differences[0].got == 77
    assert verdict.figures["equal_entries"] < len(entries)
    assert "> num_waiting" in verdict.as_text()
    assert json.loads(verdict.as_json())["divergences"][0]["step"] == divergence.place.step


def test_another_policy_parts_them_at_a_decision(recording: Path, tmp_path: Path) -> None:
    limits = dataclasses.replace(LIMITS, max_num_seqs=3)
    verdict = bisect(recording, record_run(tmp_path / "run", mixed_load(48), limits=limits))
    assert verdict.exit_code == 1
    assert verdict.divergences[0].classification is Classification.STRUCTURAL


def test_a_recording_that_ends_sooner_differs_there(recording: Path, tmp_path: Path) -> None:
    verdict = bisect(recording, rewrite(recording, tmp_path / "cut", lambda entries: entries[:100]))
    assert verdict.exit_code == 1
    assert verdict.figures["equal_entries"] == 100
    assert verdict.divergences[0].got is None


def test_results_that_differ_are_carried_out_here_to_see_what_lies_beneath(tmp_path: Path) -> None:
    honest = record_small(tmp_path / "honest", "BF16", 12)
    plan = next(plan for plan in plans_of(honest) if plan.step > 10 and len(plan.rows) > 2 and plan.rows[0][2] == 1)
    make = reads_a_neighbours_block(plan.step, plan.rows[0][0], 1, (plan.rows[1][0] + 5) % LIMITS.num_kv_blocks)
    faulty = record_small(tmp_path / "faulty", "BF16", 12, make)
    verdict = bisect_recordings(honest, faulty, overrides=Overrides(), open_runner=open_small("BF16"))
    (divergence,) = verdict.divergences
    assert divergence.classification is Classification.NUMERIC
    assert isinstance(divergence.expected, StepCompleted)
    assert divergence.place.step == plan.step
    assert divergence.proof is not None
    assert "both give equal bits" in divergence.proof.remark
