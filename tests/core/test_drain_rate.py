"""What a refused client is told to wait: by everybody's ends, or by its tenant's own where the bound is its own."""

from engine.core.decisions import RejectReason, RequestRejected
from engine.core.drain_rate import MAX_RETRY_AFTER_MS, MAX_TENANTS, MIN_RETRY_AFTER_MS, WINDOW, DrainRate
from engine.core.events import RequestArrived
from engine.core.request import Request
from engine.core.sampling_params import SamplingParams
from tests.story import Story

S = 1_000_000_000
REQUESTS, TOKENS = RejectReason.TENANT_QUEUE_FULL, RejectReason.TENANT_QUEUE_TOKENS_FULL


def end(rate: DrainRate, tenant: str, *times_s: int, num_prompt_tokens: int = 10) -> None:
    for time_s in times_s:
        event = RequestArrived(0, "r", tenant, 0, 0, num_prompt_tokens, 1, (), SamplingParams())
        rate.ended(Request(event), time_s * S)


def test_a_tenants_queue_drains_at_its_own_rate() -> None:
    """The busy one ends a request a second, the slow one every ten."""
    rate = DrainRate()
    end(rate, "slow", 0, 10)
    end(rate, "busy", *range(11, 21))
    assert rate.retry_after_ms_of("slow", REQUESTS, 3, 30, 20 * S) == 30_000
    assert rate.retry_after_ms_of("busy", REQUESTS, 3, 30, 20 * S) == 2_700
    assert rate.retry_after_ms(12, 20 * S) == 19_999


def test_a_bound_in_tokens_goes_by_tokens() -> None:
    rate = DrainRate()
    end(rate, "t", 0, 10, num_prompt_tokens=100)
    assert rate.retry_after_ms_of("t", TOKENS, 9, 300, 10 * S) == 15_000


def test_a_tenant_without_ends_of_its_own_is_told_everybodys_rate() -> None:
    rate = DrainRate()
    assert rate.retry_after_ms_of("new", REQUESTS, 3, 30, S) == MIN_RETRY_AFTER_MS
    end(rate, "new", 0)
    end(rate, "other", 2, 4)
    assert rate.retry_after_ms_of("new", REQUESTS, 3, 30, 6 * S) == 6_000


def test_a_wait_is_bounded_on_both_sides() -> None:
    rate = DrainRate()
    end(rate, "t", 0, 1000)
    assert rate.retry_after_ms_of("t", REQUESTS, 30, 300, 1000 * S) == MAX_RETRY_AFTER_MS
    assert rate.retry_after_ms_of("t", REQUESTS, 0, 0, 1000 * S) == MIN_RETRY_AFTER_MS


def test_only_the_latest_ends_count_and_only_so_many_tenants_are_known() -> None:
    rate = DrainRate()
    end(rate, "t", 0, *range(1000, 1000 + WINDOW))
    assert rate.retry_after_ms_of("t", REQUESTS, 10, 0, (1000 + WINDOW) * S) == 10_000
    for index in range(MAX_TENANTS):
        end(rate, f"other{index}", 2000)
    assert len(rate._of_tenant) == MAX_TENANTS
    assert "t" not in rate._of_tenant


def refused_after_ms(decision_rules: int) -> int:
    """What a tenant is told whose bound is full, and whose requests take a second each, the others' none."""
    story = Story(max_num_seqs=1, max_num_queued_reqs_per_tenant=2, num_kv_blocks=64, decision_rules=decision_rules)
    for index in range(3):
        story.arrives(f"mine{index}", prompt=2, output=1, tenant="mine")
        story.completes(execute_ms=1)
        story.waits(2_000)
    for index in range(20):
        story.arrives(f"other{index}", prompt=2, output=1, tenant="other")
        story.completes(execute_ms=1)
    story.arrives("run", prompt=2, output=20, tenant="other")
    for index in range(3, 6):
        story.arrives(f"mine{index}", prompt=2, output=1, tenant="mine")
    (refused,) = [decision for decision in story.decisions if isinstance(decision, RequestRejected)]
    return refused.retry_after_ms


def test_the_core_tells_a_tenant_over_its_own_bound_its_own_rate() -> None:
    assert refused_after_ms(decision_rules=2) == 4_032
    assert refused_after_ms(decision_rules=1) == MIN_RETRY_AFTER_MS
