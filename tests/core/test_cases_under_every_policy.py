"""What must hold whoever comes first: the cases s01, s02, s03, s04, s06, s13 and s14, without a model, in every policy.

Next door `tests/integration` tells them over HTTP. Tokens are drawn by the scripted runner, which reads its context
back through the block tables, so that a block lost or shared wrongly would show in them.
"""

from typing import Any

import pytest

from engine.core.contents import RequestContents
from engine.core.decisions import (
    Decision,
    FinishReason,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
)
from engine.core.events import CancelCause, Event, RequestArrived, RequestCancelled
from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner

KEY = b"every-policy-16b"
every_policy = pytest.mark.parametrize("policy", POLICY_NAMES)


class Served:
    """A core and its scripted runner; every decision in order, every token by request."""

    def __init__(self, policy: str, **limits: Any) -> None:
        defaults: dict[str, Any] = {"block_size": 4, "num_kv_blocks": 8, "max_model_len": 64, "max_num_seqs": 4}
        defaults["reserve_output"] = "none"  # so that blocks run out
        self.limits = Limits(**{**defaults, "max_num_batched_tokens": 16, "scheduling_policy": policy, **limits})
        self.core = Core(self.limits)
        self.runner = ScriptedRunner(self.limits.num_kv_blocks, self.limits.block_size, KEY)
        self.decisions: list[Decision] = []
        self.tokens: dict[int, list[int]] = {}
        self.result: StepResult | None = None
        self.now_ns = 0

    def arrive(self, number: int, prompt: list[int], output: int) -> None:
        contents, sampling = RequestContents(tuple(prompt)), SamplingParams(seed=number, ignore_eos=True)
        self.runner.add_request(number, sampling, contents)
        digests = self.runner.prompt_digests(contents)
        tenant, priority = "ab"[number % 2], 9 - number % 10
        self.handle(
            RequestArrived(
                number, f"r{number}", tenant, priority, self.now_ns, len(prompt), output, digests, sampling, 1 + number
            )
        )

    def handle(self, event: Event) -> list[Decision]:
        self.now_ns += 1_000_000
        decisions = self.core.handle(event, self.now_ns)
        self.decisions += decisions
        for decision in decisions:
            if isinstance(decision, StepPlanned):
                self.result = self.runner.execute(decision)
            else:
                self.runner.carry_out(decision)
        self.core.pool.check_invariants()
        return decisions

    def complete(self) -> list[Decision]:
        assert self.result is not None
        (completed, outputs, _prompts), self.result = self.result, None
        for output in outputs:
            if output.request in self.core.requests:
                self.tokens.setdefault(output.request, []).append(output.token_id)
        return self.handle(completed)

    def run(self) -> None:
        while self.result is not None:
            self.complete()
        assert not self.core.requests
        assert self.core.pool.num_free == self.limits.num_kv_blocks

    def of(self, kind: type[Any]) -> list[Any]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]


def prompt_of(number: int, length: int) -> list[int]:
    return [1 + (number * 37 + place) % 900 for place in range(length)]


def alone(policy: str, number: int, length: int, output: int) -> list[int]:
    served = Served(policy, num_kv_blocks=64)
    served.arrive(number, prompt_of(number, length), output)
    served.run()
    return served.tokens[number]


@every_policy
def test_s01_what_is_larger_than_the_pool_is_refused_and_harms_nobody(policy: str) -> None:
    served = Served(policy)
    served.arrive(0, prompt_of(0, 5), 6)
    served.arrive(1, prompt_of(1, 33), 1)
    served.run()
    assert [decision.request for decision in served.of(RequestRejected)] == [1]
    assert served.tokens == {0: alone(policy, 0, 5, 6)}


@every_policy
def test_s02_what_outgrows_the_pool_ends_by_itself_and_the_others_have_all_of_their_tokens(policy: str) -> None:
    served = Served(policy)
    served.arrive(0, prompt_of(0, 20), 40)
    for number in (1, 2):
        served.arrive(number, prompt_of(number, 6), 8)
    served.run()
    ends = {decision.request: decision.reason for decision in served.of(RequestFinished)}
    assert ends == {0: FinishReason.KV_CACHE_EXHAUSTED, 1: FinishReason.LENGTH, 2: FinishReason.LENGTH}
    for number in (1, 2):
        assert served.tokens[number] == alone(policy, number, 6, 8)


@every_policy
@pytest.mark.parametrize("caching", [False, True])
def test_s03_and_s04_preempted_requests_give_the_same_tokens_and_leave_the_step(policy: str, caching: bool) -> None:
    served = Served(policy, enable_prefix_caching=caching)
    for number in range(4):
        served.arrive(number, prompt_of(number, 6), 16)
    while served.result is not None:
        decisions = served.complete()
        victims = {decision.request for decision in decisions if isinstance(decision, RequestPreempted)}
        listed = {row[0] for decision in decisions if isinstance(decision, StepPlanned) for row in decision.rows}
        assert not victims & listed
    assert served.of(RequestPreempted), "no preemption: the run proves nothing"
    for number in range(4):
        assert served.tokens[number] == alone(policy, number, 6, 16)


@every_policy
def test_s06_a_client_that_leaves_between_two_chunks_gives_back_all_it_held(policy: str) -> None:
    served = Served(policy, max_num_batched_tokens=6)
    served.arrive(0, prompt_of(0, 24), 4)
    served.complete()
    served.handle(RequestCancelled(0, CancelCause.CLIENT))
    assert served.core.pool.num_free == served.limits.num_kv_blocks
    served.arrive(1, prompt_of(1, 24), 4)
    served.run()
    assert served.tokens == {1: alone(policy, 1, 24, 4)}


@every_policy
def test_s13_a_wholly_cached_prompt_still_computes_a_token_and_gives_the_same_ones(policy: str) -> None:
    served = Served(policy)
    served.arrive(0, prompt_of(0, 16), 3)
    served.run()
    served.arrive(20, prompt_of(0, 16), 3)
    served.run()
    assert served.of(RequestAdmitted)[1].num_hit_blocks == 3
    fresh = Served(policy)
    fresh.arrive(20, prompt_of(0, 16), 3)
    fresh.run()
    assert served.tokens[20] == fresh.tokens[20]


@every_policy
def test_s14_a_steady_flow_of_prompts_does_not_stop_a_running_stream(policy: str) -> None:
    served = Served(policy, num_kv_blocks=64, max_num_batched_tokens=8)
    served.arrive(0, prompt_of(0, 2), 30)
    for number in range(1, 12):
        served.arrive(number, prompt_of(number, 20), 1)
    for _ in range(29):
        served.complete()
        plan = served.of(StepPlanned)[-1]
        assert [count for request, _start, count in plan.rows if request == 0] == [1]
    served.run()
