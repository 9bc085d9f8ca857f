"""A thousand seeded runs: every promise about blocks, budgets, ends and contents holds, and each replays to itself."""

import pytest

from engine.core.decisions import FinishReason, RequestFinished, StepPlanned
from engine.core.scheduler import Core
from engine.core.vocabulary import entry_from_array, entry_to_array
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner
from tests.simulation.simulate import DIGEST_KEY, Run, simulate, solo_tokens

NUM_RUNS = 1_000
NUM_BATCHES = 10
COMPLETE = (FinishReason.STOP, FinishReason.LENGTH)


def check_replay(run: Run) -> None:
    """The recorded inputs, fed to a fresh core, give the recorded decisions; also after a trip through the format."""
    core = Core(run.limits)
    for entry in run.entries:
        decoded = entry_from_array(entry_to_array(entry))
        assert decoded == entry
        assert tuple(core.handle(decoded.event, decoded.now_ns)) == entry.decisions  # type: ignore[arg-type]


def check_contents(run: Run) -> int:
    """Every client got what the request gives alone, as far as it went; returns how many tokens were compared."""
    num_compared = 0
    for request, (end,) in run.ends.items():
        if not isinstance(end, RequestFinished):
            continue
        tokens, digests = solo_tokens(run, request)
        received = run.tokens.get(request, [])
        assert received == tokens[: len(received)]
        assert run.digests.get(request, []) == digests[: len(received)]
        if end.reason in COMPLETE:
            assert received == tokens
        num_compared += len(received)
    return num_compared


@pytest.mark.parametrize("batch", range(NUM_BATCHES))
def test_random_runs_keep_every_promise_and_replay_to_equal_records(batch: int) -> None:
    names = ("preemptions", "hits", "in_step", "failed", "tokens", "policy changes", "starved", "demoted")
    totals = dict.fromkeys(names, 0)
    for seed in range(batch * NUM_RUNS // NUM_BATCHES, (batch + 1) * NUM_RUNS // NUM_BATCHES):
        run = simulate(seed)
        check_replay(run)
        totals["tokens"] += check_contents(run)
        totals["preemptions"] += run.num_preemptions
        totals["hits"] += run.num_hits
        totals["in_step"] += run.num_cancelled_in_step
        totals["failed"] += run.num_failed_steps
        totals["policy changes"] += run.num_policy_changes
        totals["starved"] += run.num_starved
        totals["demoted"] += run.num_demoted
    assert totals["preemptions"] > 20, totals  # the load is worth its name
    assert totals["hits"] > 100, totals
    assert totals["in_step"] > 30, totals
    assert totals["failed"] > 10, totals
    assert totals["policy changes"] > 20, totals
    assert totals["starved"] > 20, totals
    assert totals["demoted"] > 20, totals
    assert totals["tokens"] > 5_000, totals


def test_two_runs_of_one_seed_are_equal() -> None:
    assert simulate(7).entries == simulate(7).entries


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
