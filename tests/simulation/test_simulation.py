"""Seeded runs of the whole engine: every promise about blocks, budgets, ends and contents holds, rare moments included.

`make soak` runs more of the same. A failing seed says how to perform it again.
"""

import pytest

from engine.core.decisions import StepPlanned
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner
from tests.simulation.faults import DIGEST_KEY
from tests.simulation.mark_names import MARKS
from tests.simulation.marks import marks_of
from tests.simulation.simulate import MODES, simulate, simulate_counts
from tests.simulation.soak import check_contents, perform

NUM_RUNS = 400
NUM_COUNTED_RUNS = 90
NUM_BATCHES = 5
found_by_batch: dict[tuple[str, int], set[str]] = {}


@pytest.mark.parametrize("batch", range(NUM_BATCHES))
def test_random_runs_keep_every_promise_and_replay_to_equal_records(batch: int) -> None:
    found = found_by_batch["contents", batch] = set()
    for seed in range(batch, NUM_RUNS, NUM_BATCHES):
        found |= perform("contents", seed).marks


@pytest.mark.parametrize("batch", range(NUM_BATCHES))
def test_long_runs_of_counts_keep_every_promise(batch: int) -> None:
    found = found_by_batch["counts", batch] = set()
    for seed in range(batch, NUM_COUNTED_RUNS, NUM_BATCHES):
        found |= perform("counts", seed).marks


def test_all_rare_situations_have_been_reached() -> None:
    if len(found_by_batch) < 2 * NUM_BATCHES:
        pytest.skip("only a part of the runs was asked for")
    missing = [mark for mark in MARKS if mark not in set[str]().union(*found_by_batch.values())]
    assert not missing


def test_two_runs_of_one_seed_are_equal() -> None:
    for mode in MODES:
        assert simulate(7, mode).entries == simulate(7, mode).entries
        assert simulate_counts(3, mode).entries == simulate_counts(3, mode).entries


def test_a_failing_seed_says_how_to_perform_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.kv_cache.BlockPool.release", lambda pool, blocks: len(blocks))
    with pytest.raises(AssertionError) as failed:
        perform("contents", 12)
    assert failed.value.__notes__ == ["again: .venv/bin/python -m tests.simulation contents --seed 12"]


def test_marks_are_found_in_a_run_and_not_in_an_empty_one() -> None:
    run = simulate_counts(1)
    assert marks_of(run.limits, run.entries)
    assert not marks_of(run.limits, [])
    assert marks_of(run.limits, run.entries) <= set(MARKS)


class _Contaminating(ScriptedRunner):
    """Writes one foreign number into a slot of another request's block, once."""

    def __init__(self, num_blocks: int, block_size: int, at_step: int) -> None:
        super().__init__(num_blocks, block_size, DIGEST_KEY)
        self._at_step = at_step

    def execute(self, plan: StepPlanned) -> StepResult:
        if plan.step == self._at_step:
            request, start, _count = max(plan.rows, key=lambda row: row[1])
            if start > 0:
                self.slots[self._slot(self._requests[request], 0)] += 1
        return super().execute(plan)


def test_a_slot_overwritten_by_another_request_changes_what_clients_get() -> None:
    caught = 0
    for seed in range(40):
        limits = simulate(seed, fault_rate=0).limits
        run = simulate(seed, runner=_Contaminating(limits.num_kv_blocks, limits.block_size, at_step=5))
        try:
            check_contents(run)
        except AssertionError:
            caught += 1
    assert caught > 10
