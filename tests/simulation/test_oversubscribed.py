"""64 requests that want three times the pool: what looking ahead at admission and the thrash controller achieve."""

import random
from typing import Any

import pytest

from engine.core.decisions import ThrashingBegan, ThrashingEnded
from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from tests.simulation.oversubscribed import MS, POOL, Arrival, Outcome, all_at_once, run

WATERMARKS_BY_HAND = (0, 200, 400, 500, 600, 650, 700)


def served(arrivals: list[Arrival], **limits: Any) -> Outcome:
    return run(Limits(**{**POOL, **limits}), arrivals)


@pytest.fixture(scope="module")
def best_goodput_by_hand() -> float:
    by_hand = [
        served(all_at_once(), reserve_output="none", thrash_bound_permille=0, watermark_permille=watermark)
        for watermark in WATERMARKS_BY_HAND
    ]
    assert by_hand[0].extra_share > 0.25, "without any of it the load is worth its name"
    return max(outcome.goodput for outcome in by_hand)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_little_is_computed_twice_and_no_watermark_by_hand_serves_more(
    policy: str, best_goodput_by_hand: float
) -> None:
    outcome = served(all_at_once(), scheduling_policy=policy)
    assert outcome.num_output_tokens == 64 * 400
    assert outcome.extra_share <= 0.10
    assert outcome.most_preempted <= 2
    assert outcome.goodput >= best_goodput_by_hand


def mixed_load() -> list[Arrival]:
    """Nothing tells who will want 20 tokens and who 900."""
    rng = random.Random(1)
    arrivals, at_ns = [], 0
    for _ in range(200):
        at_ns += int(rng.expovariate(1 / (250 * MS)))
        arrivals.append(Arrival(at_ns, rng.randint(32, 400), rng.choice([20, 40, 60, 80, 300, 900]), 1000))
    return arrivals


def test_without_reservations_the_controller_alone_takes_most_of_the_waste_away() -> None:
    wild = served(mixed_load(), reserve_output="none", thrash_bound_permille=0)
    controlled = served(mixed_load(), reserve_output="none")
    assert controlled.extra_share < wild.extra_share / 2
    assert controlled.goodput > wild.goodput
    began = sum(isinstance(decision, ThrashingBegan) for decision in controlled.decisions)
    ended = sum(isinstance(decision, ThrashingEnded) for decision in controlled.decisions)
    assert began >= 1
    assert began - ended in (0, 1)


def test_lengths_that_nothing_told_are_learned_in_time() -> None:
    wild = served(mixed_load(), reserve_output="none", thrash_bound_permille=0)
    expected = served(mixed_load())
    assert expected.extra_share < 0.06 < wild.extra_share
    assert expected.goodput > wild.goodput
