"""Seeded runs in which each step is planned while the one before runs, on a device that writes as late as it can.

Every promise holds, and every client gets the tokens and digests of the request alone: so the same as without. And
the bugs that planning ahead invites are seen: blocks touched under a running step, a token that comes late for a
request that gave way meanwhile, a token counted that never came.
"""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.ahead import StepsAhead as CountedAhead
from engine.core.planner import Planner, _StepDraft
from engine.steps_ahead import StepsAhead
from tests.simulation.soak import perform

NUM_RUNS = 50
NUM_COUNTED_RUNS = 2
NUM_SLOW_RUNS = 1_000
QUICK_SEED = 334  # finds the rarest of the planted bugs; the others are found by the next


def test_random_runs_keep_every_promise_and_replay_to_equal_records() -> None:
    for seed in range(NUM_RUNS):
        perform("contents-ahead", seed)


def test_long_runs_of_counts_keep_every_promise() -> None:
    for seed in range(NUM_COUNTED_RUNS):
        perform("counts-ahead", seed)


@pytest.mark.slow
def test_a_thousand_runs_keep_every_promise() -> None:
    for seed in range(NUM_RUNS, NUM_SLOW_RUNS):
        perform("contents-ahead", seed)


def _carries_out_under_a_running_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided while a step runs is done to the memory that it still writes."""
    monkeypatch.setattr(StepsAhead, "carry_out", lambda ahead, decision: ahead._runner.carry_out(decision))


def _takes_blocks_while_a_token_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass ahead preempts as any other: the token of the victim comes late (vllm#49620, sglang#14972)."""
    init: Callable[..., None] = _StepDraft.__init__

    def may_always(draft: Any, *, may_preempt: bool = True) -> None:
        init(draft, may_preempt=True)

    monkeypatch.setattr(_StepDraft, "__init__", may_always)
    monkeypatch.setattr(Planner, "can_plan_ahead", lambda planner, ending, num: num < len(planner.running))


def _counts_a_token_that_never_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled request's usage has the token that was on its way."""
    monkeypatch.setattr(
        CountedAhead, "give_up", lambda ahead, request: ahead.awaited.pop(request.number, None) and None
    )


@pytest.mark.parametrize(
    "plant",
    [
        _carries_out_under_a_running_step,
        _takes_blocks_while_a_token_is_on_its_way,
        _counts_a_token_that_never_came,
    ],
)
def test_a_bug_of_planning_ahead_is_seen(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(_fails(seed) for seed in (QUICK_SEED, *range(NUM_SLOW_RUNS)))


def _fails(seed: int) -> bool:
    try:
        perform("contents-ahead", seed)
    except Exception:  # an assertion of the checks, or what the core raises
        return True
    return False
