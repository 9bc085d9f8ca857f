"""What the core decides, told as stories. `story.py` explains the notation: a[0:3] computes tokens 0 to 2 of a."""

import pytest

from engine.core.decisions import RequestFinished, RequestPreempted, StepPlanned
from engine.core.errors import InvalidLimits, NonDeterministicCore, UnknownPolicy
from engine.core.events import CancelCause, StepCompleted
from engine.core.limits import Limits
from engine.core.scheduler import Core
from tests.story import Story


def test_a_request_runs_from_arrival_to_its_last_token() -> None:
    story = Story()
    story.arrives("a", prompt=3, output=2)
    story.expect("admitted a: [0, 1]", "step 0: a[0:3]")
    story.completes()
    story.expect("tokens a=1", "step 1: a[3:4]")
    story.completes()
    story.expect("tokens a=2", "finished a: length, 3+2 tokens")


def test_a_stop_token_ends_a_request_and_counts_as_output() -> None:
    story = Story()
    story.arrives("a", prompt=3)
    story.completes(stop=["a"])
    story.expect("tokens a=1", "finished a: stop, 3+1 tokens")


def test_a_block_is_allocated_when_the_last_one_is_full() -> None:
    story = Story()
    story.arrives("a", prompt=4)
    story.completes()
    story.expect("tokens a=1", "step 1: a[4:5] a+2")


def test_a_long_prompt_is_prefilled_in_chunks_within_the_token_budget() -> None:
    story = Story(num_kv_blocks=16, max_num_seqs=4, max_num_batched_tokens=5)
    story.arrives("a", prompt=12)
    story.expect("admitted a: [0, 1, 2, 3, 4, 5]", "step 0: a[0:5]")
    story.completes()
    story.expect("step 1: a[5:10]")
    story.completes()
    story.expect("step 2: a[10:12]")
    story.completes()
    story.expect("tokens a=1", "step 3: a[12:13] a+6")


def test_running_decodes_get_their_token_before_prefills_share_the_rest() -> None:
    story = Story(num_kv_blocks=32, max_num_seqs=4, max_num_batched_tokens=5)
    story.arrives("a", prompt=2)
    story.arrives("long", prompt=20)
    story.completes()
    story.expect("tokens a=1", "admitted long: [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]", "step 1: a[2:3] long[0:4] a+1")
    story.completes()
    story.expect("tokens a=2", "step 2: a[3:4] long[4:8]")


def test_the_newest_request_is_preempted_when_blocks_run_out() -> None:
    story = Story(num_kv_blocks=4, enable_prefix_caching=False)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    story.completes()
    story.expect("tokens a=1", "admitted b: [2]", "step 1: a[2:3] b[0:2] a+1")
    story.completes()
    story.expect("tokens a=2 b=1", "step 2: a[3:4] b[2:3] b+3")
    story.completes()
    story.expect(
        "tokens a=3 b=2",
        "preempted b for a: out_of_blocks, 2 blocks, 3 tokens, chain 0",
        "deferred b: preemption 2/1",
        "step 3: a[4:5] a+3",
    )


def test_a_victim_leaves_the_step_in_which_it_was_placed() -> None:
    story = Story(num_kv_blocks=3, enable_prefix_caching=False, scheduling_policy="priority")
    story.arrives("low", prompt=2, priority=9)
    story.arrives("high", prompt=2, priority=0)
    story.completes()
    story.expect("tokens low=1", "admitted high: [2]", "step 1: low[2:3] high[0:2] low+1")
    story.completes()
    story.expect(  # low stands first and has room for its token; then high needs a block
        "tokens low=2 high=1",
        "preempted low for high: out_of_blocks, 2 blocks, 3 tokens, chain 0",
        "deferred low: preemption 2/1",
        "step 2: high[2:3] high+1",
    )


def test_a_preempted_request_waits_in_front_of_younger_ones_and_recomputes_all_its_tokens() -> None:
    story = Story(num_kv_blocks=4, enable_prefix_caching=False)
    story.arrives("a", prompt=2, output=5)
    story.arrives("b", prompt=2)
    story.completes()
    story.completes()
    story.arrives("c", prompt=2)
    story.completes()  # preempts b
    assert story.told(story.decisions[3]) == "deferred c: behind_another b"
    story.completes()
    story.completes()
    story.expect(
        "tokens a=5",
        "finished a: length, 2+5 tokens",
        "admitted b: [2, 3]",
        "admitted c: [1]",
        "step 5: b[0:4] c[0:2]",
    )


def test_a_step_never_lists_a_request_that_it_preempts() -> None:
    story = Story(num_kv_blocks=6, enable_prefix_caching=False)
    for name in "abc":
        story.arrives(name, prompt=3, output=8)
    for _ in range(200):
        if story._plan is None:
            break
        story.completes()
        preempted = {d.request for d in story.decisions if isinstance(d, RequestPreempted)}
        listed = {row[0] for d in story.decisions if isinstance(d, StepPlanned) for row in d.rows}
        assert not preempted & listed
    assert story._plan is None


def test_a_request_that_outgrows_the_pool_alone_ends_with_that_reason() -> None:
    story = Story(num_kv_blocks=2)
    story.arrives("a", prompt=3, output=20)
    decisions = story.runs_until_idle()
    assert not any(isinstance(decision, RequestPreempted) for decision in decisions)
    # 4 slots hold the prompt and one output token; the next token drawn needs no slot
    assert story.told(decisions[-1]) == "finished a: kv_cache_exhausted, 3+2 tokens"


@pytest.mark.parametrize(
    ("prompt", "output", "told"),
    [
        (64, 1, "rejected a: prompt_too_long 64/63"),
        (60, 5, "rejected a: context_too_long 65/64"),
        (17, 1, "rejected a: exceeds_kv_cache 17/16"),
    ],
)
def test_what_can_never_fit_is_refused_with_the_figures(prompt: int, output: int, told: str) -> None:
    story = Story()
    story.arrives("a", prompt=prompt, output=output)
    story.expect(told)
    assert not story.core.requests


def test_the_queue_is_bounded_and_says_when_to_come_back() -> None:
    story = Story(max_num_seqs=1, max_num_queued_reqs=1)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    story.arrives("c", prompt=2)
    story.expect("rejected c: queue_full 2/1")
    assert story.decisions[0].retry_after_ms >= 1_000  # type: ignore[union-attr]


def test_a_preempted_request_takes_no_place_in_the_queue() -> None:
    story = Story(num_kv_blocks=3, max_num_queued_reqs=1, enable_prefix_caching=False)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    while not any(isinstance(decision, RequestPreempted) for decision in story.decisions):
        story.completes()
    story.arrives("c", prompt=2)
    story.expect()


def test_an_id_that_is_live_is_refused() -> None:
    story = Story()
    story.arrives("a", prompt=2, request_id="same")
    story.arrives("b", prompt=2, request_id="same")
    story.expect("rejected b: duplicate_request 0/0")


def test_equal_prefixes_share_blocks_once_they_are_written() -> None:
    story = Story(num_kv_blocks=16)
    story.arrives("a", prompt="uvwxy", output=3)
    story.arrives("b", prompt="uvwxz", output=3)
    story.expect()  # the step under way is a's
    story.completes()
    story.expect("tokens a=1", "admitted b: [0, 1, 3] hits 2", "step 1: a[5:6] b[4:5]")


def test_blocks_are_not_hit_before_they_are_written() -> None:
    story = Story(num_kv_blocks=16, max_num_seqs=4, max_num_batched_tokens=4)
    story.arrives("a", prompt="uvwxyz", output=3)
    story.arrives("b", prompt="uvwxyz", output=3)
    story.completes()  # four of a's six tokens: two blocks are written
    story.expect("admitted b: [0, 1, 3] hits 2", "step 1: a[4:6] b[4:6]")


def test_a_fully_cached_prompt_still_computes_its_last_token() -> None:
    story = Story(num_kv_blocks=16)
    story.arrives("a", prompt="uvwx", output=1)
    story.completes()
    story.arrives("b", prompt="uvwx", output=1)
    story.expect("admitted b: [0, 2] hits 1", "step 1: b[2:4]")


def test_the_longest_unused_cached_block_is_evicted_first_and_said_so() -> None:
    story = Story(num_kv_blocks=3)
    story.arrives("a", prompt="uv", output=1)
    story.runs_until_idle()
    story.arrives("b", prompt="wx", output=1)
    story.runs_until_idle()
    story.arrives("c", prompt="yz12", output=1)
    story.expect("admitted c: [2, 0] evicting [0]", "step 2: c[0:4]")


def test_without_prefix_caching_nothing_is_shared() -> None:
    story = Story(enable_prefix_caching=False)
    story.arrives("a", prompt="uvwx", output=1)
    story.completes()
    story.arrives("b", prompt="uvwx", output=1)
    story.expect("admitted b: [2, 3]", "step 1: b[0:4]")


def test_a_shared_block_is_freed_when_its_last_holder_ends() -> None:
    story = Story(num_kv_blocks=16)
    story.arrives("a", prompt="uvwxy", output=8)
    story.arrives("b", prompt="uvwxz", output=8)
    story.completes()
    story.cancels("a")
    assert [d.num_blocks_freed for d in story.decisions if isinstance(d, RequestFinished)] == [1]
    story.cancels("b")
    assert [d.num_blocks_freed for d in story.decisions if isinstance(d, RequestFinished)] == [3]
    assert story.core.pool.num_free == 16


@pytest.mark.parametrize("steps_before", [0, 1, 2, 5])
def test_a_cancel_in_the_very_step_being_executed_frees_all_at_once(steps_before: int) -> None:
    story = Story(num_kv_blocks=16, max_num_seqs=4, max_num_batched_tokens=4)
    story.arrives("a", prompt=10)
    for _ in range(steps_before):
        story.completes()
    story.cancels("a")
    story.expect(f"finished a: cancelled, 10+{max(0, steps_before - 2)} tokens")
    assert story.core.pool.num_free == 16
    story.completes()  # its result comes, and nobody is there
    story.expect()


def test_a_queued_request_can_be_cancelled_and_the_running_one_goes_on() -> None:
    story = Story(max_num_seqs=1)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    story.completes()
    story.expect("tokens a=1", "deferred b: max_num_seqs 1/6", "step 1: a[2:3] a+1")
    story.cancels("b")
    story.expect("finished b: cancelled, 2+0 tokens")
    story.completes()
    story.expect("tokens a=2", "step 2: a[3:4]")


def test_a_preempted_request_can_be_cancelled() -> None:
    story = Story(num_kv_blocks=3, enable_prefix_caching=False)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    while not any(isinstance(decision, RequestPreempted) for decision in story.decisions):
        story.completes()
    story.cancels("b")
    assert story.told(story.decisions[0]).startswith("finished b: cancelled")
    story.runs_until_idle()
    assert story.core.pool.num_free == 3


def test_a_cancel_after_the_end_changes_nothing() -> None:
    story = Story()
    story.arrives("a", prompt=2, output=1)
    story.completes()
    story.cancels("a")
    story.expect()


def test_a_drained_request_says_so_and_new_ones_are_refused() -> None:
    story = Story()
    story.arrives("a", prompt=2)
    story.drains()
    story.arrives("b", prompt=2)
    story.expect("rejected b: draining 0/0")
    assert not story.core.is_drained
    story.cancels("a", CancelCause.DRAIN)
    story.expect("finished a: drained, 2+0 tokens")
    assert story.core.is_drained


def test_a_failed_step_ends_its_requests_and_no_others() -> None:
    story = Story(max_num_seqs=1)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    story.fails()
    story.expect("finished a: failed, 2+0 tokens", "admitted b: [1]", "step 1: b[0:2]")


def test_logits_that_are_not_finite_end_that_request_alone() -> None:
    story = Story()
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    story.completes()
    story.completes(error=["a"])
    story.expect("tokens b=1", "finished a: failed, 2+1 tokens", "step 2: b[2:3] b+3")


def test_a_deferral_is_written_when_its_reason_changes_only() -> None:
    story = Story(max_num_seqs=1, num_kv_blocks=16)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    story.arrives("c", prompt=2)
    story.completes()
    story.expect("tokens a=1", "deferred b: max_num_seqs 1/14", "deferred c: behind_another b", "step 1: a[2:3] a+1")
    story.completes()
    story.expect("tokens a=2", "step 2: a[3:4]")


def test_an_urgent_request_takes_the_blocks_of_less_urgent_ones() -> None:
    story = Story(num_kv_blocks=4, scheduling_policy="priority", enable_prefix_caching=False)
    story.arrives("low", prompt=6, priority=9)
    story.arrives("high", prompt=6, priority=0)
    story.completes()
    story.expect(
        "tokens low=1",
        "preempted low for high: more_urgent_waits, 4 blocks, 6 tokens, chain 0",
        "admitted high: [3, 2, 1]",
        "deferred low: preemption 4/1",
        "step 1: high[0:6]",
    )


def test_what_a_victim_leaves_of_the_steps_budget_is_for_the_one_it_gave_way_to() -> None:
    story = Story(num_kv_blocks=6, max_num_batched_tokens=8, scheduling_policy="priority", enable_prefix_caching=False)
    story.arrives("low", prompt=12, output=1, priority=9)
    story.arrives("high", prompt=8, priority=0)
    story.completes()
    assert story.all_told()[-1] == "step 1: high[0:8]"


def test_an_urgent_request_preempts_nobody_when_it_would_not_help() -> None:
    story = Story(num_kv_blocks=6, scheduling_policy="priority", enable_prefix_caching=False)
    story.arrives("equal", prompt=6, priority=0)
    story.arrives("low", prompt=2, priority=9)
    story.completes()
    story.arrives("high", prompt=8, priority=0)
    story.completes()
    assert story.told(story.decisions[-2]).startswith("deferred high: out_of_blocks")


def test_aging_lets_an_old_request_of_a_low_class_go_first() -> None:
    story = Story(max_num_seqs=1, scheduling_policy="priority", priority_aging_ns=1_000)
    story.arrives("running", prompt=2, output=1)
    story.arrives("old", prompt=2, priority=9, arrival_ns=0)
    story.arrives("urgent", prompt=2, priority=0, arrival_ns=9_001)
    story.completes()
    assert story.told(story.decisions[2]) == "admitted old: [1]"


def cascade() -> Story:
    """Each takes the pool from the one before: low < mid < high in urgency, with room for one of them."""
    story = Story(num_kv_blocks=4, scheduling_policy="priority", enable_prefix_caching=False)
    story.arrives("low", prompt=6, priority=9)
    story.arrives("mid", prompt=6, priority=5)
    story.completes()
    assert story.told(story.decisions[1]).endswith("4 blocks, 6 tokens, chain 0")
    story.arrives("high", prompt=6, priority=0)
    return story


def test_a_cascade_of_preemptions_carries_one_chain_and_counts_its_links() -> None:
    story = cascade()
    story.completes()
    assert "preempted mid for high: more_urgent_waits, 4 blocks, 6 tokens, chain 0 link 2" in story.all_told()


def test_a_preemption_that_no_other_led_to_begins_a_chain_of_its_own() -> None:
    story = cascade()
    story.runs_until_idle()  # nobody's beneficiary is left
    story.arrives("low2", prompt=6, priority=9)
    story.arrives("high2", prompt=6, priority=0)
    story.completes()
    assert "preempted low2 for high2: more_urgent_waits, 4 blocks, 6 tokens, chain 1" in story.all_told()


def test_of_several_that_give_way_for_one_the_longest_chain_goes_on() -> None:
    story = Story(num_kv_blocks=6, scheduling_policy="priority", enable_prefix_caching=False)
    story.arrives("low", prompt=4, priority=9)
    story.arrives("mid", prompt=6, priority=5)
    story.completes()
    story.completes()
    story.arrives("other", prompt=2, priority=7)
    story.completes()
    story.arrives("high", prompt=10, priority=1)
    story.runs_until_idle()
    story.arrives("last", prompt=2)
    links = [d for d in story.history if isinstance(d, RequestPreempted)]
    assert {d.chain: d.chain_length for d in links}  # each chain is one line: its links are counted one by one
    for chain in {d.chain for d in links}:
        lengths = [d.chain_length for d in links if d.chain == chain]
        assert lengths == list(range(1, len(lengths) + 1))


def test_the_result_of_another_step_is_refused() -> None:
    story = Story()
    story.arrives("a", prompt=2)
    with pytest.raises(NonDeterministicCore, match="step 7 arrived while step 0 is under way"):
        story.on(StepCompleted(7, (), (), 0, 0))


def test_limits_under_which_no_progress_can_be_promised_are_refused() -> None:
    with pytest.raises(InvalidLimits, match="max_num_batched_tokens"):
        Core(Limits(max_num_seqs=8, max_num_batched_tokens=4))
    with pytest.raises(InvalidLimits, match="block_size"):
        Core(Limits(block_size=0))
    with pytest.raises(UnknownPolicy, match="fcfs"):
        Core(Limits(scheduling_policy="lifo"))


def test_a_name_is_free_again_when_its_request_has_ended() -> None:
    story = Story()
    story.arrives("first", prompt=2, output=1, request_id="name")
    story.arrives("second", prompt=2, output=1, request_id="name")
    assert story.all_told() == ["rejected second: duplicate_request 0/0"]
    story.completes()
    story.arrives("third", prompt=2, output=1, request_id="name")
    assert story.told(story.decisions[0]).startswith("admitted third")


def test_a_failed_step_takes_all_of_its_requests_with_it() -> None:
    story = Story()
    for name in "abc":
        story.arrives(name, prompt=2)
    story.completes()
    story.fails()
    ended = [story.told(decision) for decision in story.decisions]
    assert ended == [line for line in ended if line.startswith("finished")]
    assert [line.split()[1] for line in ended] == ["a:", "b:", "c:"]
