"""A change of policy at run time: the same policy with other parameters goes on with what it had counted or learned."""

from typing import Any

from engine.core.events import PolicyChanged
from engine.core.policies.fair import MAX_HANDED_OVER, FairShare
from engine.core.policies.output_lengths import MIN_ENDS
from engine.core.policies.shortest import ShortestFirst
from tests.story import Story


def one_place(policy: str, **limits: int) -> Story:
    """A story in which one request at a time runs, and `run` does."""
    sizes: dict[str, Any] = {"max_num_seqs": 1, "num_kv_blocks": 64, **limits}
    story = Story(scheduling_policy=policy, enable_prefix_caching=False, **sizes)
    story.arrives("run", prompt=2, output=2, tenant="nobody")
    return story


def fair(story: Story) -> FairShare:
    policy = story.core.planner.policy
    assert isinstance(policy, FairShare)
    return policy


def served_unequally(**limits: int) -> Story:
    """Tenant a was served much, b is served little; both wait for the place."""
    story = one_place("fair", **limits)
    story.arrives("a1", prompt=4, output=20, tenant="a")
    story.arrives("a2", prompt=4, output=2, tenant="a")
    for name in ("b1", "b2"):
        story.arrives(name, prompt=2, output=2, tenant="b")
    while not any(story.told(decision).startswith("admitted b1") for decision in story.decisions):
        story.completes()
    return story


def next_admitted(story: Story) -> str:
    story.history.clear()
    story.runs_until_idle()
    return next(line.split()[1] for line in map(story.told, story.history) if line.startswith("admitted"))


def test_service_counts_on_under_other_weights() -> None:
    story = served_unequally()
    counters, costs = dict(fair(story).counters), dict(fair(story)._token_costs)
    assert counters["a"] > counters["b"] > 0
    story.changes_policy("fair", tenant_weights=(("b", 2),))
    assert fair(story).counters == counters
    assert fair(story)._token_costs == {**costs, "b": costs["b"] // 2}
    assert next_admitted(story) == "b2:"


def test_an_idle_tenant_gains_nothing_by_a_change_of_parameters() -> None:
    """Nobody has left the queue since; who comes now is lifted as before the change."""
    story = one_place("fair")
    story.arrives("idle", prompt=2, output=1, tenant="idle")
    for index in range(4):
        story.arrives(f"a{index}", prompt=4, output=6, tenant="a")
    story.runs_until_idle()
    story.changes_policy("fair", decode_token_price=3)
    story.arrives("run1", prompt=2, output=2, tenant="a")
    story.changes_policy("fair", decode_token_price=2)
    story.arrives("comes", prompt=2, output=1, tenant="idle")
    assert fair(story).counters["idle"] == fair(story).counters["a"] > 0


def test_by_the_first_rules_and_after_a_policy_that_does_not_count_all_begin_anew() -> None:
    story = served_unequally(decision_rules=1)
    story.changes_policy("fair", decode_token_price=3)
    assert set(fair(story).counters.values()) == {0}
    assert next_admitted(story) == "a2:"
    story = served_unequally()
    story.changes_policy("fcfs")
    story.changes_policy("fair")
    assert set(fair(story).counters.values()) == {0}


def test_learned_lengths_outlive_a_change_of_parameters() -> None:
    story = one_place("shortest")
    for index in range(MIN_ENDS):
        story.arrives(f"brief{index}", prompt=4, output=3, tenant="t")
    story.runs_until_idle()
    story.changes_policy("shortest", decode_token_price=5)
    policy = story.core.planner.policy
    assert isinstance(policy, ShortestFirst)
    assert policy.lengths.predict("t", 4) == 3


def test_service_counts_on_in_the_engine_that_follows_a_dead_one() -> None:
    before = served_unequally()
    counted = before.core.planner.policy.to_hand_over()
    assert dict(counted) == fair(before).counters
    assert counted[-1][0] == fair(before)._left_last == "b"
    after = Story(scheduling_policy="fair", enable_prefix_caching=False, max_num_seqs=1, num_kv_blocks=64)
    after.on(PolicyChanged("fair", (), counted))
    assert fair(after).counters == fair(before).counters
    after.arrives("a2", prompt=4, output=2, tenant="a")
    after.arrives("a3", prompt=4, output=2, tenant="a")
    after.arrives("b2", prompt=2, output=2, tenant="b")
    assert next_admitted(after) == "b2:", "the one that runs aside, the tenant that was served least goes first"


def test_of_many_tenants_the_counters_of_those_served_most_are_handed_over() -> None:
    policy = FairShare(one_place("fair").core.limits)
    policy.go_on_from([(f"t{number:04d}", number) for number in range(3_000)])
    counted = policy.to_hand_over()
    assert len(counted) == MAX_HANDED_OVER
    assert {tenant for tenant, _counter in counted} == {f"t{number:04d}" for number in range(2_000, 3_000)}


def test_learned_lengths_go_on_in_the_next_engine() -> None:
    before = one_place("shortest")
    before.runs_until_idle()
    for index in range(MIN_ENDS):
        before.arrives(f"x{index}", prompt=4, output=7, tenant="x")
    before.runs_until_idle()
    after = Story(scheduling_policy="shortest", max_num_seqs=1, num_kv_blocks=64)
    after.on(PolicyChanged("shortest", (), before.core.planner.policy.to_hand_over()))
    policy = after.core.planner.policy
    assert isinstance(policy, ShortestFirst)
    assert policy.lengths.predict("x", 4) == 7
