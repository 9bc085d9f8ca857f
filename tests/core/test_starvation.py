"""Nobody starves under any policy, whatever arrives: the bounds proved in `engine/core/starvation.py`, attacked."""

import pytest

from engine.core.phases.registry import PHASES_NAMES
from engine.core.policies.registry import POLICY_NAMES
from engine.core.starvation import max_admitting_passes, max_wait_in_passes
from tests.core.adversaries import ADVERSARIES, LIMITS, anything, attack, short_ones

NEVER = 2**62


@pytest.mark.parametrize("policy", POLICY_NAMES)
@pytest.mark.parametrize("name", list(ADVERSARIES))
def test_no_wait_and_no_number_of_preemptions_exceeds_its_bound(policy: str, name: str) -> None:
    for seed in range(2):
        drive = attack(policy, ADVERSARIES[name], seed, num_steps=500)
        limits = drive.core.limits
        assert len(drive.lives) > 50
        for life in drive.lives.values():
            assert life.num_passes_over <= limits.max_passes_over
            assert life.num_preemptions <= limits.max_preemptions
            assert life.num_admitting_passes <= max_admitting_passes(limits, life.num_older)
            assert life.longest_wait <= max_wait_in_passes(limits, life.num_older)


@pytest.mark.parametrize("phases", PHASES_NAMES)
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_the_bounds_hold_however_the_phases_share_a_step(policy: str, phases: str) -> None:
    drive = attack(policy, anything, 3, num_steps=300, scheduling_phases=phases)
    limits = drive.core.limits
    for life in drive.lives.values():
        assert life.num_preemptions <= limits.max_preemptions
        assert life.num_admitting_passes <= max_admitting_passes(limits, life.num_older)
        assert life.longest_wait <= max_wait_in_passes(limits, life.num_older)


def test_first_come_first_served_never_passes_anybody_over() -> None:
    for adversary in ADVERSARIES.values():
        drive = attack("fcfs", adversary, 1, num_steps=300)
        for life in drive.lives.values():
            assert life.num_passes_over == 0
            assert life.num_admitting_passes <= life.num_older * (LIMITS.max_preemptions + 1)


@pytest.mark.parametrize("policy", ["priority", "fair", "shortest", "deadline"])
def test_the_attacks_reach_the_guards_bounds(policy: str) -> None:
    """An attack that never comes to the bound would show nothing."""
    lives = [life for adversary in ADVERSARIES.values() for life in attack(policy, adversary, 0).lives.values()]
    assert max(life.num_passes_over for life in lives) == LIMITS.max_passes_over
    assert max(life.num_preemptions for life in lives) == LIMITS.max_preemptions


def test_without_the_guard_short_requests_starve_a_long_one() -> None:
    guarded = attack("shortest", short_ones, 0)
    unguarded = attack("shortest", short_ones, 0, max_passes_over=NEVER, max_preemptions=NEVER)
    limits = guarded.core.limits
    broken = [
        life
        for life in unguarded.lives.values()
        if life.num_admitting_passes > max_admitting_passes(limits, life.num_older)
    ]
    assert broken
