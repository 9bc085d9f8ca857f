"""A victim is swapped to the host pool where copying is cheaper than computing again, and goes on where it was."""

import pytest

from engine.core.decisions import PreemptMode, RequestPreempted, StepPlanned
from engine.core.errors import InvalidLimits
from engine.core.limits import Limits
from engine.core.policies.shortest import ShortestFirst
from engine.core.scheduler import Core
from engine.core.step_time import shape_of
from engine.core.swap_cost import SwapCost
from tests.story import Story

MS = 1_000_000


def slow_prefill(plan: StepPlanned) -> int:
    """A millisecond a step, and one for each token of a prefill."""
    return (1 + shape_of(plan.rows).prefill_tokens) * MS


def pressed_story(**limits: object) -> Story:
    """Two requests of which the pool holds one and a half: `b` gives way in the third step."""
    sizes = {"num_kv_blocks": 5, "swap_space_blocks": 4, "enable_prefix_caching": False}
    story = Story(step_ns=slow_prefill, **{**sizes, **limits})
    story.arrives("a", prompt=3, output=4)
    story.arrives("b", prompt=3, output=4)
    story.completes()
    story.completes()
    return story


def preemption(story: Story) -> RequestPreempted:
    (found,) = [decision for decision in story.decisions if isinstance(decision, RequestPreempted)]
    return found


def num_host_blocks_free(story: Story) -> int:
    return story.core.planner.swapping.host.num_free


# ── out and in ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_swapped_request_goes_on_without_a_prefill() -> None:
    story = pressed_story()
    story.completes()
    story.expect(
        "tokens a=3 b=2",
        "preempted b for b: out_of_blocks, 2 blocks, 0 tokens, chain 0, to host [0, 1]",
        "deferred b: preemption 3/2",
        "step 3: a[5:6]",
    )
    story.completes()
    story.expect(
        "tokens a=4",
        "finished a: length, 3+4 tokens",
        "admitted b: [3, 2, 4] from host [0, 1]",
        "step 4: b[4:5]",
    )
    assert num_host_blocks_free(story) == 4


def test_who_has_come_back_lies_in_the_host_pool_no_more() -> None:
    story = pressed_story()
    story.completes()
    b = story.core.requests[story.numbers["b"]]
    assert (b.host_blocks, b.num_swapped_tokens) == ([0, 1], 4)
    story.completes()
    assert (b.host_blocks, b.num_swapped_tokens) == ([], 0)


def test_what_the_prefix_cache_still_has_is_not_copied_back() -> None:
    story = pressed_story(enable_prefix_caching=True)
    story.completes()
    assert preemption(story).host_blocks == (0, 1)
    story.completes()
    assert "admitted b: [2, 3, 4] hits 2 evicting [4]" in story.all_told()
    assert num_host_blocks_free(story) == 4


def test_the_rest_is_copied_in_behind_the_blocks_that_were_found_and_can_be_found_again() -> None:
    story = Story(num_kv_blocks=6, swap_space_blocks=4, step_ns=slow_prefill)
    story.arrives("a", prompt=3, output=6)
    story.arrives("b", prompt=5, output=4)
    told: list[str] = []
    while not any(line.startswith("admitted b") and "host" in line for line in told):
        story.completes()
        told += story.all_told()
    assert "preempted b for b: out_of_blocks, 3 blocks, 0 tokens, chain 0, to host [0, 1, 2]" in told
    assert told[-2:] == ["admitted b: [2, 3, 4, 5] hits 2 from host [2] evicting [4, 5]", "step 6: b[6:7]"]
    b = story.core.requests[story.numbers["b"]]
    assert story.core.pool.find_prefix(b.block_digests, 3) == [2, 3, 4]


def test_a_swap_is_no_recomputation_and_thrashes_nothing() -> None:
    story = pressed_story(thrash_bound_permille=1)
    story.runs_until_idle()
    assert not [line for line in map(story.told, story.history) if "thrashing" in line]


def test_blocks_that_others_hold_are_copied_too_and_not_expected_to_be_computed_again() -> None:
    alone: list[RequestPreempted] = []
    shared: list[RequestPreempted] = []
    for figures, prompts in ((alone, ("xxxxxxabc", "yyyyyydef")), (shared, ("xxxxxxabc", "xxxxxxdef"))):
        story = Story(num_kv_blocks=10 if figures is alone else 7, swap_space_blocks=9, step_ns=slow_prefill)
        story.core.planner.swapping.cost.planned(10)
        story.core.planner.swapping.cost.observe(MS)
        for name, prompt in zip("ab", prompts, strict=True):
            story.arrives(name, prompt=prompt, output=6)
        while not any(isinstance(decision, RequestPreempted) for decision in story.decisions):
            story.completes()
        figures.append(preemption(story))
    assert len(alone[0].host_blocks) == len(shared[0].host_blocks) == 5
    assert shared[0].num_blocks_freed == 2
    assert 0 < shared[0].recompute_ns < alone[0].recompute_ns
    assert (alone[0].swap_ns, shared[0].swap_ns) == (10 * MS // 10, 7 * MS // 10), "they are not expected to come back"


# ── the choice ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_host_pool_nothing_is_weighed() -> None:
    story = pressed_story(swap_space_blocks=0)
    story.completes()
    assert preemption(story)[8:] == ((), 0, 0, 0)


def test_a_victim_is_recomputed_when_the_host_pool_has_no_room_for_it() -> None:
    story = pressed_story(swap_space_blocks=1)
    story.completes()
    found = preemption(story)
    assert (found.mode, found.num_tokens_lost, found.host_blocks) == (PreemptMode.RECOMPUTE, 4, ())
    assert found.recompute_ns > found.swap_ns
    assert found.num_host_blocks_free == 1


def test_a_victim_is_recomputed_when_nothing_is_known_of_prefill() -> None:
    story = Story(num_kv_blocks=5, swap_space_blocks=4)  # its executor tells no times
    story.arrives("a", prompt=3, output=4)
    story.arrives("b", prompt=3, output=4)
    story.runs_until_idle()
    modes = [decision.mode for decision in story.history if isinstance(decision, RequestPreempted)]
    assert modes == [PreemptMode.RECOMPUTE]


def test_the_measured_time_of_copies_decides_about_the_next_victim() -> None:
    modes: dict[int, list[PreemptMode]] = {}
    for swap_ms in (1, 100):
        story = Story(num_kv_blocks=7, swap_space_blocks=6, step_ns=slow_prefill, enable_prefix_caching=False)
        for name in "abcd":
            story.arrives(name, prompt=3, output=6)
        while story.core.requests:
            story.completes(swap_ms=swap_ms)
        preemptions = [decision for decision in story.history if isinstance(decision, RequestPreempted)]
        modes[swap_ms] = [decision.mode for decision in preemptions]
        assert preemptions[0].swap_ns == 0, "nothing was measured yet"
        assert preemptions[1].swap_ns == 3 * swap_ms * MS, "three blocks out and in, at two in swap_ms"
    assert modes == {
        1: [PreemptMode.SWAP, PreemptMode.SWAP],
        100: [PreemptMode.SWAP, PreemptMode.RECOMPUTE],
    }


def test_the_time_of_a_failed_steps_copies_is_not_taken_for_that_of_others() -> None:
    story = pressed_story()
    story.completes()
    story.fails()  # ends a; b comes back with two blocks
    story.completes(swap_ms=6)
    assert story.core.planner.swapping.cost.predict_ns(1) == 3 * MS


def test_a_rate_follows_what_is_measured() -> None:
    cost = SwapCost()
    assert cost.predict_ns(5) == 0
    cost.planned(2)
    cost.planned(2)
    cost.observe(4 * MS)
    assert cost.predict_ns(3) == 3 * MS
    cost.observe(9 * MS)  # no copies were planned: nothing is learned
    assert cost.predict_ns(1) == MS
    for _ in range(60):
        cost.planned(1)
        cost.observe(2 * MS)
    assert 1.99 * MS < cost.predict_ns(1) <= 2 * MS


def test_a_refusal_takes_something_off_the_rate() -> None:
    story = pressed_story()
    story.core.planner.swapping.cost.planned(1)
    story.core.planner.swapping.cost.observe(32 * MS)
    story.completes()
    assert preemption(story).mode is PreemptMode.RECOMPUTE
    assert story.core.planner.swapping.cost.predict_ns(1) == 31 * MS


def test_a_rate_that_only_forbids_is_doubted_until_it_is_measured_again() -> None:
    cost = SwapCost()
    cost.planned(1)
    cost.observe(10 * MS)
    num_doubts = 0
    while cost.predict_ns(1) > MS:
        cost.doubt()
        num_doubts += 1
    assert num_doubts == 73


def test_what_lies_in_the_host_pool_is_no_work_left_to_the_policy() -> None:
    work = []
    for num_blocks in (0, 40):
        story = Story(
            num_kv_blocks=21, swap_space_blocks=num_blocks, step_ns=slow_prefill, scheduling_policy="shortest"
        )
        story.arrives("a", prompt=19, output=4)
        story.arrives("b", prompt=19, output=4)
        while not any(isinstance(decision, RequestPreempted) for decision in story.decisions):
            story.completes()
        policy = story.core.planner.policy
        assert isinstance(policy, ShortestFirst)
        work.append(policy.remaining_work(story.core.requests[preemption(story).request]))
    assert 0 < work[1] < work[0]


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cancelled_request_gives_its_host_blocks_back() -> None:
    story = pressed_story()
    story.completes()
    assert num_host_blocks_free(story) == 2
    story.cancels("b")
    assert num_host_blocks_free(story) == 4
    story.runs_until_idle()


def test_a_host_pool_has_no_less_than_no_blocks() -> None:
    with pytest.raises(InvalidLimits, match="swap_space_blocks is -1"):
        Core(Limits(swap_space_blocks=-1))
