"""What lies in memory that nobody holds may change at random: with digests of KV blocks no answer is wrong for it.

Cached blocks, and blocks in the host pool, are overwritten between steps of random loads. Whoever finds one is computed
again before it reads it, or ends as failed where it had emitted from the block before: every token that went out is the
one that the request has alone.
"""

import random

import pytest
from structlog.testing import capture_logs

from engine.clock import ManualClock
from engine.core.decisions import PreemptReason, RequestFinished, RequestPreempted, StepPlanned
from engine.core.events import KVMismatch
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop
from engine.protocol import Arrive
from tests.simulation.checks import Checks, Run, check_ends
from tests.simulation.faults import DIGEST_KEY, Faults
from tests.simulation.load import random_limits, random_messages, with_swap_space
from tests.simulation.simulate import SimulatedInbox, solo_tokens


class Corrupting(ScriptedRunner):
    def __init__(self, limits: Limits, rng: random.Random) -> None:
        super().__init__(limits.num_kv_blocks, limits.block_size, DIGEST_KEY, keeps_kv_digests=True)
        self._rng = rng
        self._limits = limits

    def execute(self, plan: StepPlanned) -> StepResult:
        new = {block for _request, block in plan.new_blocks}
        held = new.union(*[table for _request, table in self._tables()])
        for block in range(self._limits.num_kv_blocks):
            if block not in held and self._rng.random() < 0.05:
                self.slots[block * self._limits.block_size + self._rng.randrange(self._limits.block_size)] = -9
        for tokens in self.host.values():
            if self._rng.random() < 0.05:
                tokens[self._rng.randrange(len(tokens))] = -9
        result = super().execute(plan)
        step_ns = 100_000 * sum(count for _request, _start, count in plan.rows)
        return result._replace(completed=result.completed._replace(execute_ns=step_ns, swap_ns=step_ns // 8))


def run_of(seed: int) -> Run:
    rng = random.Random(f"corruption/{seed}")
    limits, messages = with_swap_space(random_limits(rng), seed), random_messages(rng)
    core, clock = Core(limits), ManualClock()
    run = Run(limits, core)
    run.arrivals = {message.request: message for message in messages if isinstance(message, Arrive)}
    checks = Checks(run)
    runner = Corrupting(limits, rng)
    inbox = SimulatedInbox(rng, messages, clock, Faults(rng, 0))
    with capture_logs():
        EngineLoop(core, runner, clock, checks, checks.publish, watch=runner.watch).serve(inbox)
    check_ends(run)
    return run


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [run_of(seed) for seed in range(40)]


def test_no_token_that_went_out_is_wrong(runs: list[Run]) -> None:
    num_compared = 0
    for run in runs:
        for request, (end,) in run.ends.items():
            if isinstance(end, RequestFinished) and request in run.arrivals:
                tokens, digests = solo_tokens(run, request)
                num_emitted = end.num_output_tokens
                assert run.tokens.get(request, []) == tokens[:num_emitted]
                assert run.digests.get(request, []) == digests[:num_emitted]
                num_compared += num_emitted
    assert num_compared > 1_000


def test_the_faults_were_met(runs: list[Run]) -> None:
    entries = [entry for run in runs for entry in run.entries]
    noticed = {entry.event.noticed for entry in entries if isinstance(entry.event, KVMismatch)}
    assert noticed == {"hit", "swap_in"}
    preempted = [d for entry in entries for d in entry.decisions if isinstance(d, RequestPreempted)]
    assert sum(d.reason == PreemptReason.KV_MISMATCH for d in preempted) > 10


def test_the_core_decides_the_same_again(runs: list[Run]) -> None:
    for run in runs:
        core = Core(run.limits)
        for entry in run.entries:
            assert tuple(core.handle(entry.event, entry.now_ns)) == entry.decisions  # type: ignore[arg-type]  # an event
