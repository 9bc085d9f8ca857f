"""What a decision costs: the core alone, in steady decode, per running request and step, under every policy."""

import statistics

from engine.clock import SystemClock
from engine.core.decisions import StepPlanned
from engine.core.events import RequestArrived, StepCompleted
from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core

NUM_STEPS = 400
NUM_TENANTS = 50
BLOCK_SIZE = 16
PROMPT_TOKENS = 128
STEP_NS = 20_000_000  # told of each step, so that the step-time model has its work


def measure_decode_us(num_running: int, policy: str = "fcfs", num_waiting: int = 0) -> tuple[float, float]:
    """Median µs of one step's handle() call with so many decoding requests, and the same per request.

    The waiting, of NUM_TENANTS tenants and ten classes, wait for a place; nobody is admitted in a measured step.
    """
    blocks_each = (PROMPT_TOKENS + NUM_STEPS) // BLOCK_SIZE + 2
    limits = Limits(
        num_kv_blocks=num_running * blocks_each,
        max_num_seqs=num_running,
        max_num_batched_tokens=num_running * PROMPT_TOKENS,
        max_model_len=4096,
        max_num_queued_reqs=num_running + num_waiting + 1,
        scheduling_policy=policy,
    )
    core, clock = Core(limits), SystemClock()
    for number in range(num_running):
        core.handle(_arrival(number), number)
    computed = dict.fromkeys(range(num_running), 0)
    costs: list[int] = []
    step, rows = 0, [(0, 0, PROMPT_TOKENS)]
    for turn in range(NUM_STEPS + 2):
        if turn == 1:  # all of the running are admitted
            for number in range(num_running, num_running + num_waiting):
                core.handle(_arrival(number), number)
        emitted, filled = [], []
        for number, start, count in rows:
            computed[number] = start + count
            emitted.append((number, "", 0, 0))
            filled += [
                (number, b"%d:%d" % (number, index))
                for index in range(max(start, PROMPT_TOKENS) // BLOCK_SIZE, (start + count) // BLOCK_SIZE)
            ]
        event = StepCompleted(step, tuple(emitted), tuple(filled), STEP_NS, 0)
        before = clock.now_ns()
        decisions = core.handle(event, turn)
        costs.append(clock.now_ns() - before)
        plan = decisions[-1]
        assert isinstance(plan, StepPlanned)
        step, rows = plan.step, list(plan.rows)
    median_us = statistics.median(costs[2:]) / 1_000
    return median_us, median_us / num_running


def _arrival(number: int) -> RequestArrived:
    tenant, priority = f"tenant-{number % NUM_TENANTS}", number % 10
    return RequestArrived(
        number, str(number), tenant, priority, 0, PROMPT_TOKENS, NUM_STEPS * 2, _digests(number), SamplingParams()
    )


def _digests(number: int) -> tuple[bytes, ...]:
    return tuple(b"%d:%d" % (number, index) for index in range(PROMPT_TOKENS // BLOCK_SIZE))


def report() -> list[str]:
    lines = ["decision cost, steady decode (a peer: 8.3 µs per request and step; goal 2)"]
    for num_running in (1, 8, 64, 256):
        total, each = measure_decode_us(num_running)
        lines.append(f"  {num_running:4d} running   {total:8.1f} µs per step   {each:5.2f} µs per request")
    lines.append("each policy: µs per step (per request) at 64 running, 256 running, 64 running and 10,000 waiting")
    for policy in POLICY_NAMES:
        measured = [measure_decode_us(*load) for load in ((64, policy), (256, policy), (64, policy, 10_000))]
        lines.append(f"  {policy:10}" + "".join([f"   {total:8.1f} ({each:5.2f})" for total, each in measured]))
    return lines
