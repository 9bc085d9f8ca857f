"""TTFT and ITL targets: what `deadline` expects of a request by the step-time model, and what `adaptive` leaves to
prefills beside streams of one target or of several.
"""

from typing import Any

from engine.core.decisions import RequestDemoted, StepPlanned
from engine.core.limits import Limits
from engine.core.policies.deadline import EarliestDeadlineFirst
from engine.core.step_time import shape_of
from tests.story import Story

MS = 1_000_000


def cpu_ns(plan: StepPlanned) -> int:
    """4 ms a step, 1 ms a decode row, 0.5 ms a prefill token."""
    shape = shape_of(plan.rows)
    return 4 * MS + shape.num_decodes * MS + shape.prefill_tokens * MS // 2


def served_before(**limits: Any) -> Story:
    """A core that has seen steps of both kinds, enough to predict by, and has nothing to do."""
    sizes: dict[str, Any] = {"block_size": 16, "num_kv_blocks": 1024, "max_model_len": 4096}
    sizes |= {"max_num_batched_tokens": 100, "enable_prefix_caching": False, "step_ns": cpu_ns}
    story = Story(**{**sizes, **limits})
    for index in range(10):
        story.arrives(f"before{index}", prompt=20 + 30 * (index % 3), output=40)
        if index % 2:
            story.runs_until_idle()
    assert story.core.step_times.is_reliable
    return story


# ── deadline ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def demoted(story: Story) -> dict[str, int]:
    """Who was demoted, and when its token was expected, in ms after its arrival."""
    names = {number: name for name, number in story.numbers.items()}
    return {names[d.request]: d.expected_ms for d in story.history if isinstance(d, RequestDemoted)}


def test_deadline_demotes_what_a_prefill_takes_too_long_for() -> None:
    """400 tokens are four steps of at least 54 ms beside a stream; 60 are one of 35."""
    story = served_before(scheduling_policy="deadline", max_num_seqs=1)
    story.arrives("run", prompt=2, output=6)
    story.completes()
    story.arrives("long", prompt=400, output=2, ttft_target_ms=150)
    story.arrives("feasible", prompt=60, output=2, ttft_target_ms=160)
    story.runs_until_idle()
    assert demoted(story).keys() == {"long"}
    assert 200 < demoted(story)["long"] < 260


def test_deadline_does_not_take_a_short_prompt_for_a_long_one() -> None:
    """Steps filled to the brim take 54 ms; a smoothed step time would expect that of two tokens as well."""
    story = served_before(scheduling_policy="deadline", max_num_seqs=1)
    for index in range(30):
        story.arrives(f"full{index}", prompt=100, output=1)
    story.runs_until_idle()
    story.arrives("run", prompt=100, output=2)
    story.completes()
    story.arrives("brief", prompt=2, output=2, ttft_target_ms=30)
    story.runs_until_idle()
    assert "brief" not in demoted(story)


def test_deadline_expects_nothing_of_steps_before_it_has_seen_enough() -> None:
    story = Story(scheduling_policy="deadline", max_num_seqs=1, num_kv_blocks=64, step_ns=cpu_ns)
    story.arrives("run", prompt=10, output=4)
    story.arrives("long", prompt=60, output=2, ttft_target_ms=20)
    story.completes()
    assert not demoted(story)


def test_deadline_counts_nothing_for_what_comes_back_from_the_host_pool() -> None:
    story = served_before(scheduling_policy="deadline")
    story.arrives("r", prompt=400, output=2)
    policy, request = story.core.planner.policy, story.core.requests[story.numbers["r"]]
    assert isinstance(policy, EarliestDeadlineFirst)
    whole_ns = policy._min_time_ns(request)
    request.num_swapped_tokens = 399
    assert policy._min_time_ns(request) < whole_ns / 10
    request.num_swapped_tokens = 0


def test_a_recording_of_the_first_rules_is_predicted_by_the_mean_step() -> None:
    """Four steps of 50 ms cannot be done in 150 ms, one can."""
    old = Limits.from_dict({})
    assert (old.decision_rules, old.itl_target_ms, old.mixed_step_target_ms) == (1, 200, 50)
    sizes: dict[str, Any] = {"max_num_seqs": 1, "num_kv_blocks": 64, "max_num_batched_tokens": 4}
    story = Story(scheduling_policy="deadline", decision_rules=1, enable_prefix_caching=False, **sizes)
    story.arrives("run", prompt=2, output=2)
    story.arrives("long", prompt=16, ttft_target_ms=150)
    story.arrives("short", prompt=2, ttft_target_ms=160)
    story.completes(execute_ms=50)
    assert demoted(story) == {"long": 203}


# ── adaptive ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def longest_chunk(story: Story, targets_ms: list[int]) -> int:
    """Of a long prompt beside streams with these ITL targets."""
    for index, target_ms in enumerate(targets_ms):
        story.arrives(f"stream{index}", prompt=20, output=400, itl_target_ms=target_ms)
    for _ in range(10):
        story.completes()
    story.arrives("long", prompt=2000, output=1)
    story.completes()
    chunks = []
    for _ in range(5):
        story.completes()
        chunks += [count for d in story.decisions if isinstance(d, StepPlanned) for _r, _s, count in d.rows]
    return max(chunks)


def test_adaptive_keeps_the_target_of_the_most_hasty_stream() -> None:
    def beside(*targets_ms: int) -> int:
        return longest_chunk(served_before(max_num_batched_tokens=512, min_prefill_tokens=1), [*targets_ms])

    hasty, patient, default = beside(400, 30), beside(400, 400), beside(0, 400)
    assert 40 <= hasty <= 52  # 30 ms, less 6 for two streams, at 0.5 ms a token
    assert 80 <= default <= 95  # 50 ms
    assert patient == 510


def test_a_deprecated_step_target_stands_above_the_streams() -> None:
    story = served_before(max_num_batched_tokens=512, min_prefill_tokens=1, mixed_step_target_ms=100)
    assert 170 <= longest_chunk(story, [30, 400]) <= 195


def test_another_itl_target_is_heeded_at_once() -> None:
    story = served_before(max_num_batched_tokens=512, min_prefill_tokens=1)
    story.changes_policy("fcfs", itl_target_ms=30)
    assert 40 <= longest_chunk(story, [0, 0]) <= 52
