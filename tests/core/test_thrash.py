"""The thrash controller sees recomputing, holds admission back, and lets go again."""

from engine.core.decisions import AdmissionThrottled, Decision, ThrashingBegan, ThrashingEnded
from engine.core.limits import Limits
from engine.core.thrash import PART_TOKENS, WINDOW_PARTS, ThrashController
from tests.story import Story

LIMITS = Limits(num_kv_blocks=1000, watermark_permille=10, thrash_bound_permille=100)


def parts(controller: ThrashController, *recomputed: int) -> list[Decision]:
    """Full parts of the window, so many tokens of each computed again."""
    return [decision for count in recomputed for decision in controller.computed(PART_TOKENS, count)]


def test_calm_computing_decides_nothing() -> None:
    controller = ThrashController(LIMITS)
    assert parts(controller, *[0] * 50) == []
    assert controller.watermark_blocks == 10


def test_a_share_above_the_bound_begins_thrashing_and_raises_the_watermark() -> None:
    controller = ThrashController(LIMITS)
    assert parts(controller, 0, 0, 100) == []
    assert parts(controller, 200) == [ThrashingBegan(300, 4 * PART_TOKENS, 100), AdmissionThrottled(50, 10, 146)]


def test_the_watermark_doubles_while_recomputing_goes_on_up_to_half_of_the_pool() -> None:
    controller = ThrashController(LIMITS)
    raised = [d.watermark_blocks for d in parts(controller, *[300] * 8) if isinstance(d, AdmissionThrottled)]
    assert raised == [50, 100, 200, 400, 500]


def test_between_the_bound_and_half_of_it_nothing_flickers() -> None:
    controller = ThrashController(LIMITS)
    parts(controller, *[120] * WINDOW_PARTS)
    assert controller.is_thrashing
    told = parts(controller, *[40, 35] * 20)  # about 7 %: below the bound, above its half
    assert controller.is_thrashing
    assert not any(isinstance(decision, ThrashingBegan | ThrashingEnded) for decision in told)


def test_it_ends_below_half_of_the_bound_and_the_watermark_comes_down_to_the_operators_own() -> None:
    controller = ThrashController(LIMITS)
    parts(controller, *[300] * 4)
    told = parts(controller, *[0] * 40)
    assert sum(isinstance(decision, ThrashingEnded) for decision in told) == 1
    lowered = [decision for decision in told if isinstance(decision, AdmissionThrottled)]
    assert all(decision.watermark_blocks < decision.watermark_before for decision in lowered)
    assert controller.watermark_blocks == 10
    assert parts(controller, *[0] * 5) == []


def test_a_bound_of_zero_watches_nothing() -> None:
    controller = ThrashController(Limits(thrash_bound_permille=0))
    assert parts(controller, *[PART_TOKENS] * 20) == []


def test_the_core_counts_only_what_was_computed_before_the_preemption() -> None:
    story = Story(num_kv_blocks=4, enable_prefix_caching=False, max_num_batched_tokens=64, thrash_bound_permille=100)
    controller = story.core.planner.admission.thrash
    story.arrives("a", prompt=2, output=5)
    story.arrives("b", prompt=2)
    while not any(told.startswith("preempted b") for told in story.all_told()):
        story.completes()
    while not any(told.startswith("admitted b") for told in story.all_told()):
        story.completes()
    assert controller._recomputed == 0
    story.completes()  # b computes 4 tokens, 3 of which it had when it gave way
    assert controller._recomputed == 3
