"""Stories of steps planned while the one before runs: what is known early is counted early, nothing else is guessed."""

from typing import Any

import pytest

from engine.core.errors import NonDeterministicCore
from engine.core.events import KVMismatch, StepCompleted, StepLaunched
from tests.story import Story


def story(**limits: Any) -> Story:
    return Story(async_scheduling=True, **limits)


def test_the_next_token_is_planned_before_the_one_before_it_is_known() -> None:
    told = story()
    told.arrives("a", prompt=3)
    told.expect("admitted a: [0, 1]", "step 0: a[0:3]")
    told.launches()
    told.expect("step 1: a[3:4]")
    told.completes()
    told.expect("tokens a=1")
    told.launches()
    told.expect("step 2: a[4:5] a+2")
    told.completes()
    told.expect("tokens a=2")


def test_a_prefill_goes_on_and_whoever_has_come_meanwhile_is_admitted() -> None:
    told = story(max_num_batched_tokens=8, scheduling_phases="chunked")
    told.arrives("a", prompt=10)
    told.expect("admitted a: [0, 1, 2, 3, 4]", "step 0: a[0:8]")
    told.arrives("b", prompt=2)
    told.expect()
    told.launches()
    told.expect("admitted b: [5]", "step 1: a[8:10] b[0:2]")
    told.completes()
    told.expect()
    told.launches()
    told.expect("step 2: a[10:11] b[2:3] a+6 b+7")


def test_a_request_whose_last_token_is_on_its_way_has_no_row_in_the_step_ahead() -> None:
    told = story()
    told.arrives("a", prompt=2, output=1)
    told.arrives("b", prompt=2)
    told.completes()
    told.expect("tokens a=1", "finished a: length, 2+1 tokens", "admitted b: [1]", "step 1: b[0:2]")
    told.arrives("c", prompt=2, output=1)
    told.launches()
    told.expect("admitted c: [3]", "step 2: b[2:3] c[0:2] b+2")
    told.completes()
    told.launches()
    told.expect("step 3: b[3:4]")
    told.completes()
    told.expect("tokens b=2 c=1", "finished c: length, 2+1 tokens")


def test_when_all_that_run_are_to_end_the_step_is_planned_after_them() -> None:
    told = story()
    told.arrives("a", prompt=2, output=1)
    told.arrives("b", prompt=2, output=1)
    told.launches()
    told.expect()
    told.completes()
    told.expect("tokens a=1", "finished a: length, 2+1 tokens", "admitted b: [1]", "step 1: b[0:2]")


def test_a_stop_token_ends_a_request_that_has_a_row_in_the_step_ahead() -> None:
    told = story()
    told.arrives("a", prompt=2)
    told.launches()
    told.completes(stop=["a"])
    told.expect("tokens a=1", "finished a: stop, 2+1 tokens")
    told.arrives("b", prompt=2)  # the step ahead is under way: its only row is nobody's
    told.expect()
    told.launches()
    told.expect()  # nobody goes on after it
    told.completes()
    told.expect("admitted b: [2]", "step 2: b[0:2]")


def test_blocks_of_one_that_stopped_are_given_away_for_the_step_after_the_one_ahead() -> None:
    told = story(num_kv_blocks=4)
    told.arrives("a", prompt=4)
    told.arrives("b", prompt=2)
    told.launches()
    told.expect("admitted b: [3]", "step 1: a[4:5] b[0:2] a+2")
    told.completes(stop=["a"])
    told.expect("tokens a=1", "finished a: stop, 4+1 tokens")
    told.arrives("c", prompt=2)
    told.launches()
    told.expect("admitted c: [1] evicting [1]", "step 2: b[2:3] c[0:2] b+2")


def test_a_cancelled_request_is_told_the_tokens_that_came_and_not_the_one_on_its_way() -> None:
    told = story()
    told.arrives("a", prompt=2)
    told.arrives("b", prompt=2)
    told.launches()
    told.cancels("a")
    told.expect("finished a: cancelled, 2+0 tokens")
    told.completes()
    told.expect()


def test_nobody_gives_way_while_a_token_is_on_its_way() -> None:
    told = story(num_kv_blocks=4, enable_prefix_caching=False)
    told.arrives("a", prompt=3)
    told.arrives("b", prompt=3)
    told.completes()
    told.expect("tokens a=1", "admitted b: [2, 3]", "step 1: a[3:4] b[0:3]")
    told.launches()
    told.expect()  # both need a block, and none is free
    told.completes()
    told.expect(
        "tokens a=2 b=1",
        "preempted b for a: out_of_blocks, 2 blocks, 3 tokens, chain 0",
        "deferred b: preemption 2/1",
        "step 2: a[4:5] a+3",
    )
    told.launches()
    told.expect("deferred b: out_of_blocks 2/1", "step 3: a[5:6]")


def test_a_more_urgent_request_takes_blocks_once_the_result_is_there() -> None:
    told = story(num_kv_blocks=4, scheduling_policy="priority", enable_prefix_caching=False)
    told.arrives("a", prompt=6, priority=5)
    told.completes()
    told.arrives("u", prompt=4, priority=0)
    told.launches()
    told.expect()
    told.completes()
    assert "preempted a for u: more_urgent_waits, 4 blocks, 7 tokens, chain 0" in told.all_told()


def test_a_failed_step_ends_its_requests_and_the_step_ahead_goes_on_without_them() -> None:
    told = story()
    told.arrives("a", prompt=2)
    told.arrives("b", prompt=2)
    told.launches()
    told.expect("admitted b: [2]", "step 1: a[2:3] b[0:2] a+1")
    told.fails()
    told.expect("finished a: failed, 2+0 tokens")
    told.launches()
    told.expect("step 2: b[2:3] b+3")
    told.completes()
    told.expect("tokens b=1")


def test_logits_that_are_not_finite_end_one_request_without_the_token_that_was_counted() -> None:
    told = story()
    told.arrives("a", prompt=2)
    told.launches()
    told.completes(error=["a"])
    told.expect("finished a: failed, 2+0 tokens")


def test_copies_back_that_were_planned_ahead_are_timed_with_the_step_ahead() -> None:
    told = story(swap_space_blocks=8)
    told.arrives("a", prompt=2)
    cost = told.core.planner.swapping.cost
    told.core._ahead._copies = 3  # type: ignore[union-attr]  # as a pass ahead would plan them
    told.completes(swap_ms=0)
    assert cost.take_planned() == 3


def test_without_the_option_a_launch_plans_nothing() -> None:
    told = Story()
    told.arrives("a", prompt=2)
    told.launches()
    told.expect()
    told.completes()
    told.expect("tokens a=1", "step 1: a[2:3] a+1")


def test_events_that_cannot_be_are_refused() -> None:
    told = story()
    with pytest.raises(NonDeterministicCore, match="not the one to be launched"):
        told.on(StepLaunched(0))
    told.arrives("a", prompt=2)
    told.launches()
    with pytest.raises(NonDeterministicCore, match="not the one to be launched"):
        told.on(StepLaunched(0))
    with pytest.raises(NonDeterministicCore, match="between a step's launch and its result"):
        told.on(KVMismatch(0, 1, 2, 0, (), "hit", 0, 0))
    with pytest.raises(NonDeterministicCore, match="was to draw a token"):
        told.on(StepCompleted(0, (), (), 0, 0))
