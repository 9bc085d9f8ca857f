"""What each policy decides, told as stories: who goes first, who gives way, and what changes at run time.

`story.py` explains the notation. In most of them one place is taken by `run`, so that the order of the others shows.
"""

from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted, RequestDemoted, RequestPreempted
from engine.core.errors import InvalidLimits, UnknownPolicy
from engine.core.events import PolicyChanged
from engine.core.limits import Limits
from engine.core.policies.fair import MAX_IDLE_TENANTS, FairShare
from engine.core.policies.output_lengths import DEFAULT_OUTPUT_TOKENS, MAX_MEANS, MIN_ENDS, OutputLengths
from engine.core.scheduler import Core
from tests.story import Story


def order_of(story: Story) -> list[str]:
    """The names in the order in which they are admitted until all is done; one step at a time."""
    names = {number: name for name, number in story.numbers.items()}
    admitted = [d.request for d in story.runs_until_idle() if isinstance(d, RequestAdmitted)]
    return [names[number] for number in admitted]


def one_place(policy: str, **limits: Any) -> Story:
    """A story in which one request at a time runs, and `run` does."""
    story = Story(max_num_seqs=1, num_kv_blocks=64, scheduling_policy=policy, enable_prefix_caching=False, **limits)
    story.arrives("run", prompt=2, output=2, tenant="nobody")
    return story


# ── fair ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fair_serves_the_tenant_that_was_served_least() -> None:
    story = one_place("fair")
    for name in ("a1", "a2", "a3", "a4"):
        story.arrives(name, prompt=4, output=4, tenant="a")
    for name in ("b1", "b2"):
        story.arrives(name, prompt=4, output=4, tenant="b")
    assert order_of(story) == ["a1", "b1", "a2", "b2", "a3", "a4"]


def test_fair_gives_a_tenant_of_weight_two_twice_as_much() -> None:
    story = one_place("fair", tenant_weights=(("a", 2),))
    for index in range(6):
        story.arrives(f"a{index}", prompt=4, output=4, tenant="a")
        story.arrives(f"b{index}", prompt=4, output=4, tenant="b")
    first = [name[0] for name in order_of(story)][:9]
    assert (first.count("a"), first.count("b")) == (6, 3)


def test_fair_prices_prompt_and_output_tokens_apart() -> None:
    """a reads much, b writes much: with dear output tokens a has two turns for one of b's."""
    story = one_place("fair", prefill_token_price=1, decode_token_price=10, max_num_batched_tokens=64)
    for index in range(4):
        story.arrives(f"reads{index}", prompt=20, output=1, tenant="a")
        story.arrives(f"writes{index}", prompt=1, output=20, tenant="b")
    assert order_of(story)[:6] == ["reads0", "writes0", "reads1", "reads2", "reads3", "writes1"]


def test_fair_charges_nothing_for_prompt_tokens_found_in_the_cache() -> None:
    story = Story(scheduling_policy="fair", num_kv_blocks=32)
    story.arrives("a", prompt="uvwxyz", output=1, tenant="a")
    story.runs_until_idle()
    policy = story.core.planner.policy
    assert isinstance(policy, FairShare)
    before = policy.counters["a"]
    story.arrives("again", prompt="uvwxyz", output=1, tenant="a")
    story.runs_until_idle()
    assert policy.counters["a"] - before == (2 * 1 + 2) * 1_000_000  # two of six to compute, one to emit


def test_fair_gives_no_credit_for_idling() -> None:
    """b was away while a was served for long; on its return they take turns, b does not catch up."""
    story = one_place("fair")
    for index in range(12):
        story.arrives(f"a{index}", prompt=4, output=4, tenant="a")
    story.arrives("b0", prompt=4, output=4, tenant="b")
    for _ in range(30):
        story.completes()
    for index in range(1, 4):
        story.arrives(f"b{index}", prompt=4, output=4, tenant="b")
    turns = [name[0] for name in order_of(story)]
    assert "bb" not in "".join(turns[:4]), turns


def test_fair_does_not_charge_for_what_a_preemption_makes_it_compute_again() -> None:
    def served(num_kv_blocks: int) -> tuple[dict[str, int], int]:
        story = Story(scheduling_policy="fair", num_kv_blocks=num_kv_blocks, enable_prefix_caching=False)
        story.arrives("a", prompt=2, output=8, tenant="a")
        story.arrives("b", prompt=2, output=8, tenant="b")
        decisions = story.runs_until_idle()
        policy = story.core.planner.policy
        assert isinstance(policy, FairShare)
        return policy.counters, sum(type(decision).__name__ == "RequestPreempted" for decision in decisions)

    roomy, narrow = served(64), served(6)
    assert narrow[1] > 0
    assert narrow[0] == roomy[0]


def test_fair_makes_the_most_served_tenants_newest_give_way() -> None:
    story = Story(scheduling_policy="fair", num_kv_blocks=8, enable_prefix_caching=False)
    story.arrives("a1", prompt=4, output=8, tenant="a")
    story.arrives("b", prompt=2, output=8, tenant="b")
    story.arrives("a2", prompt=2, output=8, tenant="a")
    told = [story.told(decision) for decision in story.runs_until_idle()]
    victims = [line.split()[1] for line in told if line.startswith("preempted")]
    assert victims[0] == "a2"


def test_fair_forgets_idle_tenants_beyond_a_bound() -> None:
    story = Story(scheduling_policy="fair", num_kv_blocks=64)
    for index in range(MAX_IDLE_TENANTS + 10):
        story.arrives(f"r{index}", prompt=1, output=1, tenant=f"t{index}")
        story.completes()
    policy = story.core.planner.policy
    assert isinstance(policy, FairShare)
    assert len(policy.counters) <= MAX_IDLE_TENANTS + 1


# ── shortest ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shortest_admits_the_least_work_first() -> None:
    story = one_place("shortest")
    story.arrives("long", prompt=20, output=8)
    story.arrives("short", prompt=2, output=8)
    story.arrives("middle", prompt=2, output=12)
    assert order_of(story) == ["short", "middle", "long"]


def test_shortest_learns_how_much_a_tenant_writes() -> None:
    story = one_place("shortest")
    for index in range(MIN_ENDS):
        story.arrives(f"brief{index}", prompt=4, output=2, tenant="brief")
        story.arrives(f"talks{index}", prompt=4, output=30, tenant="talks")
    story.runs_until_idle()
    story.arrives("now", prompt=2, output=2)
    story.arrives("talks", prompt=4, output=40, tenant="talks")
    story.arrives("brief", prompt=4, output=40, tenant="brief")
    assert order_of(story) == ["brief", "talks"]


def test_shortest_moves_the_head_back_when_its_prediction_has_risen() -> None:
    """What ends while it waits shows that its tenant's answers are longer than those before."""
    story = one_place("shortest")
    for index in range(MIN_ENDS):
        story.arrives(f"brief{index}", prompt=4, output=2, tenant="t")
    story.runs_until_idle()
    story.arrives("ends long", prompt=4, output=40, tenant="t")
    story.arrives("x", prompt=4, output=40, tenant="t")
    story.arrives("y", prompt=6, output=5, tenant="other")
    assert story.core.requests[story.numbers["x"]].rank < story.core.requests[story.numbers["y"]].rank
    assert order_of(story) == ["y", "x"]


def test_shortest_makes_the_one_with_most_work_left_give_way() -> None:
    story = Story(scheduling_policy="shortest", num_kv_blocks=6, enable_prefix_caching=False)
    story.arrives("long", prompt=2, output=40)
    story.arrives("short", prompt=2, output=10)
    told = [story.told(decision) for decision in story.runs_until_idle()]
    assert next(line.split()[1] for line in told if line.startswith("preempted")) == "long"


def test_a_prediction_comes_from_the_narrowest_group_that_has_seen_enough() -> None:
    lengths = OutputLengths()
    assert lengths.predict("t", 100) == DEFAULT_OUTPUT_TOKENS
    for _ in range(MIN_ENDS):
        lengths.learn("other", 7, 10)
    assert lengths.predict("t", 100) == 10  # of all
    for _ in range(MIN_ENDS):
        lengths.learn("t", 3, 20)
    assert lengths.predict("t", 100) == 20  # of the tenant
    for _ in range(MIN_ENDS):
        lengths.learn("t", 100, 70)
    assert lengths.predict("t", 127) == 70  # of its prompts of 64 to 127 tokens
    assert lengths.predict("t", 128) == 45


def test_old_ends_fade_and_forgotten_groups_are_bounded() -> None:
    lengths = OutputLengths()
    for _ in range(200):
        lengths.learn("t", 8, 10)
    for _ in range(200):
        lengths.learn("t", 8, 100)
    assert lengths.predict("t", 8) > 95
    for index in range(MAX_MEANS + 10):
        lengths.learn(f"t{index}", 8, 10)
    assert len(lengths._means) == MAX_MEANS


# ── deadline ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_deadline_admits_the_earliest_target_first() -> None:
    story = one_place("deadline")
    story.arrives("patient", prompt=2, ttft_target_ms=9_000)
    story.arrives("default", prompt=2)
    story.arrives("hasty", prompt=2, ttft_target_ms=1_000)
    assert order_of(story) == ["hasty", "default", "patient"]


def test_deadline_demotes_what_cannot_be_met_and_says_so() -> None:
    story = one_place("deadline")
    story.arrives("late", prompt=2, ttft_target_ms=100)
    story.arrives("fine", prompt=2, ttft_target_ms=900)
    story.waits(200)
    story.completes()
    story.expect(
        "tokens run=1",
        "deferred fine: max_num_seqs 1/62",
        "deferred late: behind_another fine",
        "demoted late: 203/100 ms",
        "step 1: run[2:3] run+1",
    )
    assert order_of(story) == ["fine", "late"]


def test_deadline_puts_a_preempted_stream_by_its_next_token() -> None:
    """The one with the wider ITL target is the further ahead of it: it gives way, and waits behind a new one."""
    story = Story(scheduling_policy="deadline", num_kv_blocks=4, enable_prefix_caching=False)
    story.arrives("slow", prompt=2, output=8, ttft_target_ms=100, itl_target_ms=5_000)
    story.arrives("fast", prompt=2, output=8, ttft_target_ms=100, itl_target_ms=50)
    told = [story.told(decision) for decision in story.runs_until_idle()]
    assert next(line.split()[1] for line in told if line.startswith("preempted")) == "slow"


# ── the guard ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_was_passed_over_too_often_is_protected_and_goes_next() -> None:
    story = one_place("shortest", max_passes_over=2)
    story.arrives("long", prompt=20, output=8)
    for index in range(4):
        story.arrives(f"short{index}", prompt=2, output=2)
    told = [story.told(decision) for decision in story.runs_until_idle()]
    assert "starved long: passed_over, 2 passes over, 0 preemptions, bound 2" in told
    admitted = [line.split()[1] for line in told if line.startswith("admitted")]
    assert admitted == ["short0:", "short1:", "long:", "short2:", "short3:"]


def test_whoever_was_preempted_too_often_is_preempted_no_more() -> None:
    story = Story(
        num_kv_blocks=8,
        scheduling_policy="priority",
        enable_prefix_caching=False,
        max_preemptions=2,
        max_num_seqs=4,
        priority_aging_ns=10**12,
    )
    story.arrives("low", prompt=6, output=6, priority=9)
    told: list[str] = []
    for index in range(8):
        story.arrives(f"high{index}", prompt=10, output=3)
        for _ in range(4):
            if story._plan is not None:
                story.completes()
                told += [story.told(decision) for decision in story.decisions]
    told += [story.told(decision) for decision in story.runs_until_idle()]
    assert sum(line.startswith("preempted low") for line in told) == 2
    assert any(line.startswith("starved low: preempted") and line.endswith("2 preemptions, bound 2") for line in told)
    assert any(line.startswith("finished low: length") for line in told)


def test_protected_requests_are_admitted_only_while_their_full_needs_fit_the_pool() -> None:
    """Each may grow to five of eight blocks: the second protected one waits for the first, not to preempt it later."""
    story = Story(num_kv_blocks=8, scheduling_policy="shortest", enable_prefix_caching=False, max_preemptions=1)
    for name in "abc":
        story.arrives(name, prompt=2, output=8)
    told = [story.told(decision) for decision in story.runs_until_idle()]
    assert any("reserved_blocks" in line for line in told)
    victims = [line.split()[1] for line in told if line.startswith("preempted")]
    assert len(victims) == len(set(victims))


# ── a change at run time ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_waiting_are_ranked_anew_when_the_policy_changes() -> None:
    story = one_place("fcfs")
    story.arrives("first", prompt=20, output=8)
    story.arrives("second", prompt=2, output=2)
    story.changes_policy("shortest")
    story.expect()
    assert order_of(story) == ["second", "first"]


def test_a_parameter_changes_while_the_others_stay() -> None:
    story = one_place("fair", tenant_weights=(("a", 2),))
    story.changes_policy("fair", decode_token_price=7)
    assert story.core.limits.decode_token_price == 7
    assert story.core.limits.tenant_weights == (("a", 2),)
    for name in ("a1", "a2"):
        story.arrives(name, prompt=4, tenant="a")
    assert order_of(story) == ["a1", "a2"]


@pytest.mark.parametrize("policy", ["fcfs", "priority", "fair", "shortest", "deadline"])
def test_every_policy_can_follow_every_other_in_the_middle_of_things(policy: str) -> None:
    story = Story(num_kv_blocks=6, enable_prefix_caching=False, max_num_seqs=3)
    for index in range(6):
        story.arrives(f"r{index}", prompt=2, output=6, tenant="ab"[index % 2], priority=index)
    for following in ("priority", "fair", "shortest", "deadline", "fcfs", policy):
        story.completes()
        story.changes_policy(following)
        story.completes()
    story.runs_until_idle()
    assert not story.core.requests
    assert story.core.pool.num_free == 6


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (PolicyChanged("lottery"), "lottery"),
        (PolicyChanged("fair", (("num_kv_blocks", 9),)), "num_kv_blocks"),
        (PolicyChanged("fair", (("decode_token_price", 0),)), "decode_token_price"),
        (PolicyChanged("fair", (("tenant_weights", (("a", 0),)),)), "tenant_weights"),
        (PolicyChanged("fair", (("tenant_weights", 3),)), "tenant_weights"),
        (PolicyChanged("fair", (("max_preemptions", "many"),)), "max_preemptions"),
    ],
)
def test_a_change_that_cannot_be_is_refused_before_it_is_an_event(event: PolicyChanged, said: str) -> None:
    core = Core(Limits())
    with pytest.raises((UnknownPolicy, InvalidLimits), match=said):
        core.check_policy_change(event)
    core.check_policy_change(PolicyChanged("fair", (("tenant_weights", (("a", 2),)),)))


def test_a_victims_blocks_that_the_urgent_one_shares_free_nothing_for_it() -> None:
    story = Story(num_kv_blocks=6, scheduling_policy="priority")
    story.arrives("w", prompt=1)
    story.arrives("v", prompt="xxxxyy", priority=9)
    story.completes()
    story.arrives("u", prompt="xxxxyyzzzz")
    story.completes()  # v has four blocks, three of them u's prefix; u needs two more
    story.expect("tokens w=2 v=1", "deferred u: out_of_blocks 2/0", "step 2: w[2:3] v[6:7] w+4 v+5")


def test_those_that_run_are_ranked_anew_by_another_policy_too() -> None:
    story = Story(num_kv_blocks=4, enable_prefix_caching=False)
    story.arrives("patient", prompt=3, priority=9)
    story.arrives("urgent", prompt=3, priority=0)
    story.completes()
    story.changes_policy("priority")
    story.completes()
    story.completes()
    victims = [decision.request for decision in story.history if isinstance(decision, RequestPreempted)]
    assert victims == [story.numbers["patient"]]


def test_nobody_is_preempted_for_an_older_request_of_the_same_class() -> None:
    story = Story(num_kv_blocks=4, scheduling_policy="priority", enable_prefix_caching=False)
    story.arrives("younger", prompt=6, output=2, priority=5, arrival_ns=500)
    story.arrives("older", prompt=6, output=1, priority=5, arrival_ns=0)
    story.runs_until_idle()
    assert not any(isinstance(decision, RequestPreempted) for decision in story.history)


def test_a_demotion_is_forgotten_with_the_wait_it_was_for() -> None:
    """Its first token was late; the next one is due in a minute."""
    story = Story(max_num_seqs=1, scheduling_policy="deadline")
    story.arrives("run", prompt=2, output=3)
    story.arrives("late", prompt=2, output=8, ttft_target_ms=1, itl_target_ms=60_000)
    story.waits(50)
    late = story.core.requests[story.numbers["late"]]
    while not late.num_output_tokens:
        story.completes()
    assert any(isinstance(decision, RequestDemoted) for decision in story.history)
    assert story.core.planner.policy.rank(late, 100_000_000)[0] == 0
