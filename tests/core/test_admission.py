"""Who is kept out although his blocks are free: the watermark, what the running will need, and for how long."""

from typing import Any

import pytest

from engine.core.errors import InvalidLimits
from engine.core.expected_output import FIRST_GUESS_TOKENS, MAX_ENDS, MIN_ENDS, ExpectedOutput
from engine.core.limits import Limits
from engine.core.scheduler import Core
from tests.story import Story


def roomy_story(**limits: Any) -> Story:
    sizes = {"block_size": 4, "num_kv_blocks": 20, "max_model_len": 80, "max_num_batched_tokens": 64}
    return Story(**{**sizes, "enable_prefix_caching": False, **limits})


def test_an_admission_leaves_the_watermark_free() -> None:
    story = roomy_story(watermark_permille=300)  # 6 of 20 blocks
    story.arrives("a", prompt=40)
    story.arrives("b", prompt=20)
    story.completes()
    assert "deferred b: watermark 5/9 kept 6" in story.all_told()


@pytest.mark.parametrize(("decision_rules", "needed"), [(3, 7), (2, 4)])
def test_cached_blocks_that_nobody_holds_are_needed_as_they_are_free(decision_rules: int, needed: int) -> None:
    """So that who lacks blocks is seen to need more than there are; older recordings keep the older figure."""
    story = roomy_story(enable_prefix_caching=True, num_kv_blocks=8, max_model_len=32, decision_rules=decision_rules)
    story.arrives("a", prompt="same beginnin", output=1)
    story.completes()  # 3 of its blocks can be found again
    story.arrives("b", prompt=15, output=2)  # 4 blocks
    story.arrives("c", prompt="same beginning, another end", output=1)  # 7 blocks, 3 of them found
    story.completes()
    assert f"deferred c: out_of_blocks {needed}/4" in story.all_told()


@pytest.mark.parametrize(("prompt", "goes"), [(12, True), (13, False)])
def test_the_watermark_is_kept_to_the_block(prompt: int, goes: bool) -> None:
    story = roomy_story(watermark_permille=300)  # 6 of 20 blocks
    story.arrives("a", prompt=40)  # and 1 more for its next token: 9 are free
    story.arrives("b", prompt=prompt)
    story.completes()
    assert any(told.startswith("admitted b") for told in story.all_told()) is goes


def test_neither_rule_keeps_the_only_request_out() -> None:
    story = roomy_story(watermark_permille=900, reserve_output="max")
    story.arrives("a", prompt=79, output=1)
    assert story.told(story.decisions[0]).startswith("admitted a")


def test_a_request_waits_while_the_running_ones_are_expected_to_need_its_blocks() -> None:
    story = roomy_story(reserve_output="max")
    story.arrives("a", prompt=8, output=40)
    story.arrives("b", prompt=8, output=40)  # together they would come to 24 blocks of 20
    story.completes()
    assert story.all_told()[1].startswith("deferred b: expected_growth 2/17 kept")
    assert not any(told.startswith("preempted") for told in map(story.told, story.runs_until_idle()))


def test_a_request_is_let_in_beside_one_that_will_be_gone_in_time() -> None:
    """Both would get to 12 blocks, but not at the same time."""
    story = roomy_story(reserve_output="max")
    story.arrives("a", prompt=8, output=40)
    for _ in range(30):
        story.completes()
    story.arrives("b", prompt=8, output=40)
    story.completes()
    assert "admitted b" in " ".join(story.all_told())
    decisions = story.runs_until_idle()
    assert not any(story.told(decision).startswith("preempted") for decision in decisions)


def test_the_expectation_is_learned_from_those_that_ended() -> None:
    story = roomy_story(reserve_output="expected")
    for index in range(MIN_ENDS):
        story.arrives(f"short{index}", prompt=4, output=40)
        story.completes()
        story.completes(stop=[f"short{index}"])
    story.arrives("a", prompt=8, output=40)
    story.arrives("b", prompt=8, output=40)
    story.completes()
    assert "admitted b" in " ".join(story.all_told())


def test_nothing_is_learned_from_those_who_were_cut_off() -> None:
    story = roomy_story(reserve_output="expected")
    for index in range(MIN_ENDS):
        story.arrives(f"short{index}", prompt=4, output=40)
        story.completes()
        story.cancels(f"short{index}")
        story.completes()
    story.arrives("a", prompt=8, output=40)
    story.arrives("b", prompt=8, output=40)
    story.completes()
    assert any(told.startswith("deferred b: expected_growth") for told in story.all_told())


def test_a_request_that_the_policy_lets_preempt_others_is_not_kept_out() -> None:
    story = roomy_story(reserve_output="max", scheduling_policy="priority", watermark_permille=900)
    story.arrives("low", prompt=8, output=40, priority=9)
    story.arrives("high", prompt=8, output=40, priority=0)
    story.completes()
    assert "admitted high" in " ".join(story.all_told())


def test_blocks_shared_through_the_prefix_cache_are_counted_once() -> None:
    """Eight of the ten requests' 12 blocks are one prefix: 8 + 10 × 4 = 48 blocks of 60."""
    story = Story(
        block_size=4,
        num_kv_blocks=60,
        max_model_len=80,
        max_num_seqs=16,
        max_num_batched_tokens=64,
        reserve_output="max",
    )
    prefix = "abcdefghijklmnopqrstuvwxyz012345"
    story.arrives("first", prompt=prefix + "!", output=9)
    story.completes()
    for index in range(9):
        story.arrives(f"r{index}", prompt=prefix + str(index), output=9)
    story.completes()
    assert sum(told.startswith("admitted") for told in story.all_told()) == 9


def test_the_first_guess_is_careful_and_bounded() -> None:
    expected = ExpectedOutput()
    assert expected.predict(40) == 40
    assert expected.predict(8_000) == FIRST_GUESS_TOKENS


def test_each_magnitude_of_the_maximum_has_its_own_share() -> None:
    expected = ExpectedOutput()
    for _ in range(2 * MAX_ENDS):
        expected.learn(100, 100)
        expected.learn(8_000, 160)
    assert expected.predict(120) == 120
    assert expected.predict(6_000) == 120


def test_an_unknown_reservation_is_refused() -> None:
    with pytest.raises(InvalidLimits, match="choose one of none, expected, max"):
        Core(Limits(reserve_output="all"))
