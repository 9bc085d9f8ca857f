"""Four ways to share a step between prefill and decode, each on a core that is told how long its steps take."""

from typing import Any

import pytest

from engine.core.decisions import StepPlanned, TokensEmitted
from engine.core.errors import UnknownPhases
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.step_time import shape_of
from tests.story import Story

MS = 1_000_000


def cpu_ns(plan: StepPlanned) -> int:
    """4 ms a step, 1 ms a decode row, 0.5 ms a prefill token."""
    shape = shape_of(plan.rows)
    return 4 * MS + shape.num_decodes * MS + shape.prefill_tokens * MS // 2


def timed_story(phases: str, **limits: Any) -> Story:
    sizes = {"block_size": 16, "num_kv_blocks": 1024, "max_model_len": 4096, "max_num_batched_tokens": 512}
    return Story(**{**sizes, "scheduling_phases": phases, "step_ns": cpu_ns, **limits})


def plans_with(story: Story, names: str, num_streams: int = 4) -> list[StepPlanned]:
    """Streams decode; then a long prompt comes. The plans until its first token."""
    for index in range(num_streams):
        story.arrives(f"stream{index}", prompt=40, output=400)
    for _ in range(40):
        story.completes()
    story.arrives(names, prompt=1000, output=4)
    plans: list[StepPlanned] = []
    while True:
        story.completes()
        number = story.numbers[names]
        if any(number in dict(d.rows) for d in story.decisions if isinstance(d, TokensEmitted)):
            return plans
        plans += [d for d in story.decisions if isinstance(d, StepPlanned)]


def decodes_in(plan: StepPlanned) -> int:
    return sum(count == 1 for _request, _start, count in plan.rows)


def prefill_in(plan: StepPlanned) -> int:
    return sum(count for _request, _start, count in plan.rows if count > 1)


def test_chunked_fills_the_budget_beside_every_stream() -> None:
    plans = plans_with(timed_story("chunked"), "long")
    assert [prefill_in(plan) for plan in plans] == [508, 492]
    assert all(decodes_in(plan) == 4 for plan in plans)


def test_adaptive_chunks_keep_the_step_within_the_target() -> None:
    plans = plans_with(timed_story("adaptive", itl_target_ms=50), "long")
    assert all(decodes_in(plan) == 4 for plan in plans)
    assert all(40 * MS < cpu_ns(plan) < 60 * MS for plan in plans[:-1])
    assert len(plans) == pytest.approx(1000 * 0.5 / 42, rel=0.25)


def test_adaptive_never_gives_less_than_the_floor() -> None:
    plans = plans_with(timed_story("adaptive", itl_target_ms=1, min_prefill_tokens=100), "long")
    assert [prefill_in(plan) for plan in plans] == [100] * 10
    assert all(decodes_in(plan) == 4 for plan in plans)


def test_adaptive_gives_a_prompt_that_is_alone_the_whole_budget() -> None:
    story = timed_story("adaptive")
    story.arrives("warm", prompt=100, output=2)
    story.runs_until_idle()
    story.arrives("long", prompt=1000, output=2)
    plans = [d for d in [*story.decisions, *story.runs_until_idle()] if isinstance(d, StepPlanned)]
    assert [prefill_in(plan) for plan in plans][:2] == [512, 488]


def test_adaptive_is_chunked_while_no_step_tells_its_time() -> None:
    plans = plans_with(timed_story("adaptive", step_ns=lambda plan: 0), "long")
    assert [prefill_in(plan) for plan in plans] == [508, 492]


def test_prefill_first_lets_streams_wait_while_prompts_are_computed() -> None:
    plans = plans_with(timed_story("prefill-first"), "long")
    assert [(decodes_in(plan), prefill_in(plan)) for plan in plans] == [(0, 512), (0, 488)]


@pytest.mark.parametrize("share", [250, 500, 750])
def test_pools_take_turns_and_prefill_gets_its_share_of_the_time(share: int) -> None:
    story = timed_story("pools", prefill_share_permille=share, max_num_batched_tokens=64)
    for index in range(4):
        story.arrives(f"stream{index}", prompt=40, output=2000)
    for _ in range(20):
        story.completes()
    for index in range(4):
        story.arrives(f"long{index}", prompt=1800, output=1)
    times = {"prefill": 0, "decode": 0}
    for _ in range(80):
        story.completes()
        (plan,) = [d for d in story.decisions if isinstance(d, StepPlanned)]
        assert not (decodes_in(plan) and prefill_in(plan)), "a step is all prefill or all decode"
        times["prefill" if prefill_in(plan) else "decode"] += cpu_ns(plan)
    assert 1000 * times["prefill"] / sum(times.values()) == pytest.approx(share, abs=50)


def test_pools_let_streams_go_on_while_the_waiting_find_no_blocks() -> None:
    story = timed_story("pools", num_kv_blocks=4, block_size=16, enable_prefix_caching=False)
    story.arrives("a", prompt=40, output=20)
    story.arrives("b", prompt=40, output=2)
    story.completes()
    for count in range(2, 21):
        story.completes()
        assert f"tokens a={count}" in [story.told(decision) for decision in story.decisions]
    assert story.core.planner.running[0].number == story.numbers["b"]
    story.runs_until_idle()


@pytest.mark.parametrize("phases", ["adaptive", "chunked", "pools", "prefill-first"])
def test_every_way_serves_everybody_to_the_end(phases: str) -> None:
    story = timed_story(phases, num_kv_blocks=60, max_num_batched_tokens=64, enable_prefix_caching=False)
    for index in range(12):
        story.arrives(f"r{index}", prompt=30 + 20 * index, output=10 + index)
    decisions = story.runs_until_idle()
    finished = [story.told(d) for d in decisions if story.told(d).startswith("finished")]
    assert len(finished) == 12
    assert all("length" in told for told in finished)


def test_unknown_phases_are_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownPhases, match="adaptive, chunked, pools, prefill-first"):
        Core(Limits(scheduling_phases="decode-first"))
