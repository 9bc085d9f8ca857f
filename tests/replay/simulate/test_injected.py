"""A simulation with injected faults says what they did, and its recording is checked like any other."""

from pathlib import Path

import pytest

from engine.core.limits import Limits
from engine.injection import UnknownInjection
from recorder.reader import Recording
from replay.check import check
from replay.simulate.arrivals import Arrival
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost

LIMITS = Limits(block_size=4, num_kv_blocks=40, max_model_len=96, max_num_seqs=4, max_num_batched_tokens=16)
ARRIVALS = [Arrival(number * 3_000_000, 12, 8, max_output_tokens=8) for number in range(12)]


def ends(folder: Path, *inject: str) -> dict[str, int]:
    run_simulation(LIMITS, ARRIVALS, StepCost(), record_dir=folder, inject=inject)
    counts: dict[str, int] = {}
    for entry in Recording.open(folder).entries():
        for decision in entry.decisions:
            if type(decision).__name__ == "RequestFinished":
                counts[str(decision.reason)] = counts.get(str(decision.reason), 0) + 1  # type: ignore[union-attr]
    return counts


def test_without_faults_all_come_to_their_ends(tmp_path: Path) -> None:
    assert ends(tmp_path / "run") == {"stop": 12} or ends(tmp_path / "again") == {"length": 12}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("alloc-fails@step=6", "failed"), ("nan-logits@step=6", "failed"), ("client-leaves@step=6", "cancelled")],
)
def test_a_fault_ends_somebody_and_the_decisions_on_it_are_made_again(tmp_path: Path, fault: str, reason: str) -> None:
    counts = ends(tmp_path / "run", fault)
    assert counts[reason] >= 1
    assert sum(counts.values()) == 12
    assert check(tmp_path / "run").exit_code == 0


def test_a_dead_executor_ends_the_recording_and_a_full_disk_leaves_a_gap(tmp_path: Path) -> None:
    assert sum(ends(tmp_path / "dead", "executor-dies@step=9").values()) < 12
    assert check(tmp_path / "dead").exit_code == 0
    run_simulation(LIMITS, ARRIVALS, StepCost(), record_dir=tmp_path / "full", inject=("disk-full@step=9",))
    recording = Recording.open(tmp_path / "full")
    assert any(type(entry.event).__name__ == "RecordingGap" for entry in recording.entries())


def test_time_passes_faster_where_it_is_said(tmp_path: Path) -> None:
    plain = run_simulation(LIMITS, ARRIVALS, StepCost())
    slow = run_simulation(LIMITS, ARRIVALS, StepCost(), inject=("step-slow@step=3:ms=900",))
    assert slow["virtual_seconds"] > plain["virtual_seconds"] + 0.8


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(UnknownInjection):
        run_simulation(LIMITS, ARRIVALS, StepCost(), inject=("rain@step=1",))
