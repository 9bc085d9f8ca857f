"""The fairness figure: what two backlogged tenants are served, one of whom sends ten times as much as the other."""

import random
from dataclasses import replace

import pytest

from tests.core.adversaries import LIMITS, Drive

NUM_STEPS = 800
WARM_UP = 100


def served_ratio(policy: str, weights: tuple[tuple[str, int], ...] = (), seed: int = 0) -> float:
    """Tokens served to `many` for each token served to `few`, while both have requests waiting all the time."""
    rng = random.Random(seed)
    limits = replace(
        LIMITS,
        num_kv_blocks=64,
        max_num_seqs=6,
        max_num_batched_tokens=16,
        max_num_queued_reqs=100_000,
        max_passes_over=64,
    )
    drive = Drive(replace(limits, scheduling_policy=policy, tenant_weights=weights), follow_waiting=False)
    before = dict.fromkeys(("many", "few"), 0)
    for step in range(NUM_STEPS):
        for tenant in ["many"] * 10 + ["few"]:
            drive.arrive(rng.randint(1, 12), rng.randint(1, 12), tenant)
        if step == WARM_UP:
            before = {tenant: drive.served[tenant] for tenant in before}
        if step > WARM_UP:
            waiting = drive.core.planner.waiting._lanes if policy == "fair" else {"many": [], "few": []}
            assert set(waiting) >= {"many", "few"}, "a tenant is not backlogged: void"
        drive.step()
    many, few = (drive.served[tenant] - before[tenant] for tenant in ("many", "few"))
    return many / few


@pytest.mark.parametrize("seed", [0, 1])
def test_a_tenant_that_sends_ten_times_as_much_is_served_as_much_as_the_other(seed: int) -> None:
    assert served_ratio("fair", seed=seed) == pytest.approx(1, rel=0.05)


def test_weights_are_kept_while_both_are_backlogged() -> None:
    assert served_ratio("fair", weights=(("few", 3),)) == pytest.approx(1 / 3, rel=0.05)


def test_first_come_first_served_gives_ten_times_as_much_to_who_sends_ten_times_as_much() -> None:
    assert served_ratio("fcfs") == pytest.approx(10, rel=0.2)
