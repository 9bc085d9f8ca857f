"""A steady flow of new prompts does not stop running decodes (s14)."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import StepPlanned
from engine.core.events import StepCompleted
from tests.integration.client import completion
from tests.integration.served import Served, serve
from tests.integration.trace import Life, Trace, check_steps, limits_of, trace_of

BUDGET = 64
NUM_OUTPUT_TOKENS = 30
MAX_TRIES = 8  # a busy machine may send the prompts too late
NUM_PROMPTS = 10  # of 200 tokens, one with each token of the stream: three times what the budget can prefill


@pytest.mark.parametrize("phases", ["adaptive", "chunked"])
def test_a_steady_flow_of_new_prompts_does_not_stop_a_running_stream(tmp_path: Path, phases: str) -> None:
    flags: dict[str, Any] = {"max_num_seqs": 16, "max_num_batched_tokens": BUDGET, "enable_prefix_caching": False}
    flags["scheduling_phases"] = phases
    with serve(tmp_path, **flags) as served:
        for number in range(MAX_TRIES):
            asyncio.run(stream_beside_prompts(served, f"s-{number}"))
            trace = trace_of(served.daemon)
            stream = trace[f"s-{number}"]
            check_listed_in_every_step(trace, stream)
            if num_mixed_steps(trace, stream) >= NUM_OUTPUT_TOKENS // 2 and num_ended_after(trace, stream) >= 2:
                break
        else:
            pytest.fail("the prompts came too late each time: too few steps held prefill to show anything")
        limits = limits_of(served.daemon)
    check_steps(trace, limits)
    check_gaps(trace, stream)


async def stream_beside_prompts(served: Served, name: str) -> None:
    async with served.connect() as client:
        stream = client.send(completion(16, output=NUM_OUTPUT_TOKENS, stream=True), headers={"X-Request-Id": name})
        prompts = []
        for index in range(NUM_PROMPTS):
            await stream.until_tokens(5 + index)
            prompts.append(client.send(completion(200, 100 + index, output=1)))
        await stream.until_end()
        assert stream.finish_reason == "length"
        for prompt in prompts:
            await prompt.until_end()
            assert prompt.finish_reason == "length"


def check_listed_in_every_step(trace: Trace, life: Life) -> None:
    """From its first token to its last: one token in each step, beside prefill that takes what is left to it."""
    plans = plans_between_tokens(trace, life)
    assert life.token_steps == list(range(life.token_steps[0], life.token_steps[-1] + 1))
    assert len(plans) == NUM_OUTPUT_TOKENS - 1
    for plan in plans:
        assert [count for number, _start, count in plan.rows if number == life.arrival.request] == [1]


def plans_between_tokens(trace: Trace, life: Life) -> list[StepPlanned]:
    first, last = life.token_steps[0], life.token_steps[-1]
    return [plan for _position, plan in trace.plans if first < plan.step <= last]


def num_mixed_steps(trace: Trace, life: Life) -> int:
    """Those between its first token and its last that held prefill."""
    plans = plans_between_tokens(trace, life)
    return sum(any(count > 1 for _number, _start, count in plan.rows) for plan in plans)


def num_ended_after(trace: Trace, life: Life) -> int:
    """Prompts that were still here when it ended: the flow did not end first."""
    return sum(other.ended_at > life.ended_at for other in trace.lives.values())


def check_gaps(trace: Trace, life: Life) -> None:
    """No gap between two tokens is longer than two full steps, by the engine's own clock."""
    assert len(life.token_times) == NUM_OUTPUT_TOKENS
    longest_gap = max(after - before for before, after in itertools.pairwise(life.token_times))
    assert longest_gap <= 2 * max(step_times(trace))


def step_times(trace: Trace) -> list[int]:
    """Nanoseconds from each step's plan to its result."""
    planned_at: dict[int, int] = {}
    times = []
    for entry in trace.entries:
        if isinstance(entry.event, StepCompleted):
            times.append(entry.now_ns - planned_at[entry.event.step])
        planned_at |= {decision.step: entry.now_ns for decision in entry.decisions if isinstance(decision, StepPlanned)}
    return times
