"""Hypothesis attacks the core: any order of arrivals, cancels, results and failures keeps its promises.

The simulation next door runs more and longer loads; this machine shrinks what it finds to a few lines.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.admission import RESERVATIONS
from engine.core.contents import RequestContents
from engine.core.decisions import Decision, RequestFinished, RequestRejected, StepPlanned
from engine.core.events import (
    CancelCause,
    DrainRequested,
    Event,
    PolicyChanged,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
    StepLaunched,
    TimerFired,
)
from engine.core.limits import Limits
from engine.core.phases.registry import PHASES_NAMES
from engine.core.policies.registry import POLICY_NAMES
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner

KEY = b"state-machine-16"


class CoreMachine(RuleBasedStateMachine):
    """One core and its scripted executor; every event is kept, and replayed at the end."""

    @initialize(
        block_size=st.integers(1, 4),
        num_kv_blocks=st.integers(1, 12),
        max_num_seqs=st.integers(1, 4),
        max_passes_over=st.integers(1, 3),
        max_preemptions=st.integers(1, 3),
        spare_budget=st.integers(0, 8),
        policy=st.sampled_from(POLICY_NAMES),
        phases=st.sampled_from(PHASES_NAMES),
        watermark_permille=st.sampled_from([0, 300]),
        reserve_output=st.sampled_from(RESERVATIONS),
        thrash_bound_permille=st.sampled_from([0, 1]),
        swap_space_blocks=st.sampled_from([0, 2, 12]),
        caching=st.booleans(),
        async_scheduling=st.booleans(),
    )
    def start(self, spare_budget: int, policy: str, phases: str, caching: bool, **sizes: Any) -> None:
        self.limits = Limits(
            **sizes,
            max_model_len=40,
            max_num_batched_tokens=sizes["max_num_seqs"] + spare_budget,
            max_num_queued_reqs=4,
            scheduling_policy=policy,
            scheduling_phases=phases,
            min_prefill_tokens=1,
            enable_prefix_caching=caching,
            priority_aging_ns=3,
            ttft_target_ms=1,
        )
        self.core = Core(self.limits)
        self.runner = ScriptedRunner(self.limits.num_kv_blocks, self.limits.block_size, KEY)
        self.handled: list[tuple[Event, int, tuple[Decision, ...]]] = []
        self.result: StepResult | None = None  # of the step under way: executed, but not yet told
        self.ahead: StepPlanned | None = None  # planned while that one ran
        self.ends: list[int] = []
        self.num_arrived = 0

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=12),
        max_output_tokens=st.integers(0, 10),
        num_prompt_logprobs=st.sampled_from([-1, -1, 2]),
        priority=st.integers(0, 9),
        tenant=st.sampled_from("ab"),
        deadline_ns=st.integers(0, 5),
    )
    def arrive(
        self,
        prompt: list[int],
        max_output_tokens: int,
        num_prompt_logprobs: int,
        priority: int,
        tenant: str,
        deadline_ns: int,
    ) -> None:
        number = self.num_arrived
        self.num_arrived += 1
        contents = RequestContents(tuple(prompt))
        sampling = SamplingParams(seed=number, num_prompt_logprobs=num_prompt_logprobs)
        digests = self.runner.prompt_digests(contents)
        self.runner.add_request(number, sampling, contents)
        arrival_ns = len(self.handled)
        self.handle(
            RequestArrived(
                number, f"r{number}", tenant, priority, arrival_ns, len(prompt), max_output_tokens, digests, sampling
            )._replace(
                deadline_ns=deadline_ns and arrival_ns + deadline_ns,
                wants_prompt_logprobs=num_prompt_logprobs >= 0,
            )
        )

    @rule()
    def fire_timer(self) -> None:
        """At any time: whoever is not due stays."""
        self.handle(TimerFired())

    @precondition(lambda self: self.num_arrived > 0)
    @rule(data=st.data(), cause=st.sampled_from(list(CancelCause)))
    def cancel(self, data: Any, cause: CancelCause) -> None:
        self.handle(RequestCancelled(data.draw(st.integers(0, self.num_arrived - 1)), cause))

    @rule(policy=st.sampled_from(POLICY_NAMES), price=st.integers(1, 3))
    def change_policy(self, policy: str, price: int) -> None:
        event = PolicyChanged(policy, (("decode_token_price", price),))
        self.core.check_policy_change(event)
        self.handle(event)

    @precondition(lambda self: self.result is not None and self.ahead is None and self.limits.async_scheduling)
    @rule()
    def launch(self) -> None:
        assert self.result is not None
        if self.core.step_ahead is None:
            self.handle(StepLaunched(self.result.completed.step))

    @precondition(lambda self: self.result is not None)
    @rule(execute_ns=st.sampled_from([0, 1_000_000, 80_000_000]))
    def complete(self, execute_ns: int) -> None:
        assert self.result is not None
        completed, self.result = self.result.completed, None
        self.handle(completed._replace(execute_ns=execute_ns, swap_ns=execute_ns // 8))

    @precondition(lambda self: self.result is not None)
    @rule()
    def fail(self) -> None:
        assert self.result is not None
        step, self.result = self.result.completed.step, None
        self.handle(StepFailed(step, "boom"))

    def handle(self, event: Event) -> None:
        now_ns = len(self.handled)
        decisions = self.core.handle(event, now_ns)
        self.handled.append((event, now_ns, tuple(decisions)))
        if isinstance(event, StepCompleted | StepFailed) and self.ahead is not None:
            self.result, self.ahead = self.runner.execute(self.ahead), None
        for decision in decisions:
            if isinstance(decision, StepPlanned) and isinstance(event, StepLaunched):
                self.ahead = decision
            elif isinstance(decision, StepPlanned):
                self.result = self.runner.execute(decision)
            else:
                self.runner.carry_out(decision)
            if isinstance(decision, RequestFinished | RequestRejected):
                self.ends.append(decision.request)

    @invariant()
    def no_block_is_lost_or_owned_twice(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.check_invariants()
        held = [block for request in self.core.requests.values() for block in request.block_table]
        assert len(set(held)) == self.limits.num_kv_blocks - self.core.pool.num_free

    @invariant()
    def a_step_is_under_way_whenever_there_is_work(self) -> None:
        if hasattr(self, "core"):
            assert (self.result is not None) or not self.core.requests

    @invariant()
    def nobody_is_passed_over_or_preempted_beyond_the_bounds(self) -> None:
        if hasattr(self, "core"):
            for request in self.core.requests.values():
                assert request.num_passes_over <= self.limits.max_passes_over
                assert request.num_preemptions <= self.limits.max_preemptions

    @invariant()
    def nobody_ends_twice(self) -> None:
        if hasattr(self, "core"):
            assert len(set(self.ends)) == len(self.ends)

    def teardown(self) -> None:
        """Everybody ends within a bounded number of steps, and the run replays to equal decisions."""
        if not hasattr(self, "core"):
            return
        self.handle(DrainRequested())
        for _ in range(2_000):
            if self.result is None:
                break
            self.complete(1_000_000)
        assert self.core.is_drained
        assert sorted(self.ends) == list(range(self.num_arrived))
        again = Core(self.limits)
        for event, now_ns, decisions in self.handled:
            assert tuple(again.handle(event, now_ns)) == decisions


CoreMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCoreMachine = CoreMachine.TestCase
