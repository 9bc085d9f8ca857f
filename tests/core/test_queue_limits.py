"""How much may wait, of one tenant and in all; and requests that give up before they begin."""

from typing import Any

import pytest

from engine.core.decisions import FinishReason, RequestFinished, RequestPreempted, RequestRejected
from tests.story import Story


def busy_story(**limits: Any) -> Story:
    """One place, taken by `run`; a step is under way."""
    story = Story(max_num_seqs=1, **limits)
    story.arrives("run", prompt=2, tenant="nobody", output=20)
    return story


def test_the_queue_is_bounded_in_tokens() -> None:
    story = busy_story(max_num_queued_tokens=10)
    story.arrives("a", prompt=6)
    story.expect()
    story.arrives("b", prompt=5)
    story.expect("rejected b: queue_tokens_full 11/10")
    assert isinstance(story.decisions[0], RequestRejected)
    assert story.decisions[0].retry_after_ms >= 1_000
    story.arrives("c", prompt=4)
    story.expect()


def test_a_prompt_beyond_the_bound_in_tokens_may_wait_alone() -> None:
    story = busy_story(max_num_queued_tokens=4)
    story.arrives("a", prompt=6)
    story.expect()


def test_a_tenants_own_bounds_leave_the_others_room() -> None:
    story = busy_story(max_num_queued_reqs_per_tenant=2, max_num_queued_tokens_per_tenant=8)
    story.arrives("a1", prompt=2, tenant="a")
    story.arrives("a2", prompt=2, tenant="a")
    story.arrives("a3", prompt=2, tenant="a")
    story.expect("rejected a3: tenant_queue_full 3/2")
    story.arrives("b1", prompt=5, tenant="b")
    story.arrives("b2", prompt=4, tenant="b")
    story.expect("rejected b2: tenant_queue_tokens_full 9/8")
    story.arrives("b3", prompt=3, tenant="b")
    story.expect()


def test_whoever_is_admitted_or_leaves_makes_room_in_the_queue() -> None:
    story = Story(max_num_seqs=1, max_num_queued_reqs_per_tenant=1)
    story.arrives("a1", prompt=2, output=1, tenant="a")
    story.arrives("a2", prompt=2, output=1, tenant="a")
    story.completes()  # a1 ends, a2 begins
    story.arrives("a3", prompt=2, tenant="a")
    story.expect()
    story.cancels("a3")
    story.arrives("a4", prompt=2, tenant="a")
    story.expect()


def test_a_preempted_request_takes_no_place_of_its_tenant() -> None:
    story = Story(num_kv_blocks=3, max_num_queued_reqs_per_tenant=1, enable_prefix_caching=False)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    while not any(isinstance(decision, RequestPreempted) for decision in story.decisions):
        story.completes()
    story.arrives("c", prompt=2)
    story.expect()


def test_a_request_that_has_not_begun_by_its_deadline_ends_as_expired() -> None:
    story = busy_story()
    story.arrives("a", prompt=2, deadline_ns=50_000_000)
    story.arrives("b", prompt=2, deadline_ns=40_000_000)
    story.arrives("c", prompt=2)
    assert story.core.next_timer_ns == 40_000_000
    story.timer_fires(at_ns=45_000_000)
    story.expect("finished b: expired, 2+0 tokens")
    assert story.core.next_timer_ns == 50_000_000
    story.timer_fires(at_ns=50_000_000)
    story.expect("finished a: expired, 2+0 tokens")
    assert story.core.next_timer_ns == 0


def test_a_request_that_was_admitted_in_time_never_expires() -> None:
    story = Story(num_kv_blocks=3, enable_prefix_caching=False)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2, deadline_ns=30_000_000)
    while not any(isinstance(decision, RequestPreempted) for decision in story.decisions):
        story.completes()
    assert story.core.next_timer_ns == 0
    story.timer_fires(at_ns=60_000_000)
    assert not any(isinstance(decision, RequestFinished) for decision in story.decisions)


@pytest.mark.parametrize("ends", ["cancelled", "admitted"])
def test_the_timer_of_a_request_that_waits_no_more_is_forgotten(ends: str) -> None:
    story = busy_story()
    story.arrives("a", prompt=2, deadline_ns=50_000_000)
    if ends == "cancelled":
        story.cancels("a")
    else:
        story.completes(stop=["run"])
    assert story.core.next_timer_ns == 0
    story.timer_fires(at_ns=60_000_000)
    assert not any(d.reason is FinishReason.EXPIRED for d in story.decisions if isinstance(d, RequestFinished))


def test_other_bounds_hold_for_those_to_come_and_send_nobody_away() -> None:
    story = busy_story(max_num_queued_reqs=2)
    story.arrives("a", prompt=2)
    story.arrives("b", prompt=2)
    story.changes_policy("fcfs", max_num_queued_reqs=1)
    story.arrives("c", prompt=2)
    story.expect("rejected c: queue_full 3/1")
    story.changes_policy("fcfs", max_num_queued_reqs=3)
    story.arrives("d", prompt=2)
    story.expect()
