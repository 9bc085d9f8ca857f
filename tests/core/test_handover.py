"""A request that an engine before this one held: its tokens are known, its count goes on, nothing refuses it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.contents import RequestContents
from engine.core.decisions import FinishReason, RequestFinished, RequestRejected, StepPlanned, TokensEmitted
from engine.core.events import DrainRequested, Event, ExecutorRestarted, RequestArrived
from engine.core.limits import Limits
from engine.core.policies.fair import FairShare
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.execution.scripted import ScriptedRunner
from tests.story import Story

KEY = b"k" * 16
MOST = 12  # output tokens


def handed_over(number: int, prompt: int, num_output_tokens: int, **fields: Any) -> RequestArrived:
    arrived = RequestArrived(number, f"h{number}", "default", 0, 0, prompt, 8, (), SamplingParams())
    return arrived._replace(num_output_tokens=num_output_tokens, num_handovers=1, **fields)


def test_no_bound_of_the_queue_and_no_drain_refuses_it() -> None:
    story = Story(max_num_seqs=1, max_num_queued_reqs=1, max_num_queued_tokens=1)
    story.arrives("run", prompt=2)
    story.arrives("waits", prompt=1)
    story.on(DrainRequested())
    story.on(handed_over(7, 4, 3))
    assert not story.decisions
    story.on(handed_over(8, 64, 0))
    assert isinstance(story.decisions[0], RequestRejected), "what can never fit is still refused"


def test_what_ends_with_its_engine_is_lost_and_what_killed_it_has_failed() -> None:
    story = Story()
    story.on(ExecutorRestarted(((3, "c", 5, 1), (4, "d", 6, 0)), ((5, 2),), (4,)))
    ends = [decision for decision in story.decisions if isinstance(decision, RequestFinished)]
    assert [(end.request, end.reason) for end in ends] == [(3, FinishReason.LOST), (4, FinishReason.FAILED)]


def test_a_tenant_is_not_charged_for_what_its_engine_lost() -> None:
    story = Story(scheduling_policy="fair")
    story.on(handed_over(0, 6, 2))
    policy = story.core.planner.policy
    assert isinstance(policy, FairShare)
    assert policy.counters == {"default": 0}


def test_the_prompt_tokens_once_found_in_the_cache_stay_in_its_account() -> None:
    story = Story(block_size=64)
    story.on(handed_over(0, 6, 7, num_cached_tokens=4))
    story.numbers["h"] = 0
    story.completes()
    assert story.decisions[:2] == [
        TokensEmitted(0, ((0, 8),)),
        RequestFinished(0, FinishReason.LENGTH, 6, 8, 4, 0, 1),
    ]


class Engine:
    """A core and the runner without weights; `run` serves what arrived until it ends or enough tokens were seen."""

    def __init__(self, limits: Limits) -> None:
        self.core = Core(limits)
        self.runner = ScriptedRunner(limits.num_kv_blocks, limits.block_size, KEY)
        self.tokens: dict[int, list[int]] = {}
        self.counts: dict[int, list[int]] = {}
        self.plan: StepPlanned | None = None

    def arrives(self, number: int, contents: RequestContents, num_handovers: int) -> None:
        digests = self.runner.prompt_digests(contents)
        sampling = SamplingParams(seed=number, ignore_eos=True)
        event = RequestArrived(
            number, f"r{number}", "t", 0, 0, len(contents.prompt_token_ids), MOST, digests, sampling
        )._replace(num_output_tokens=len(contents.output_token_ids), num_handovers=num_handovers)
        self.runner.add_request(number, sampling, contents, digests)
        self.tokens[number] = list(contents.output_token_ids)
        self.counts[number] = []
        self._handle(event)

    def run(self, num_tokens: int) -> None:
        while self.plan is not None and sum(len(counts) for counts in self.counts.values()) < num_tokens:
            plan, self.plan = self.plan, None
            result = self.runner.execute(plan)
            for output in result.outputs:
                self.tokens[output.request].append(output.token_id)
            self._handle(result.completed)
            self.core.check_invariants()

    def _handle(self, event: Event) -> None:
        for decision in self.core.handle(event, 0):
            if isinstance(decision, StepPlanned):
                self.plan = decision
                continue
            if isinstance(decision, TokensEmitted):
                for request, count in decision.rows:
                    self.counts[request].append(count)
            self.runner.carry_out(decision)


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    deaths=st.lists(st.integers(0, 40), max_size=3),
    num_kv_blocks=st.sampled_from([14, 30, 100]),
    caching=st.booleans(),
    policy=st.sampled_from(["fcfs", "fair", "shortest", "deadline"]),
)
@pytest.mark.filterwarnings("error")
def test_tokens_and_counts_are_those_of_one_engine_wherever_engines_die(
    prompts: list[int], deaths: list[int], num_kv_blocks: int, caching: bool, policy: str
) -> None:
    limits = Limits(
        block_size=4,
        num_kv_blocks=num_kv_blocks,
        max_model_len=56,
        max_num_seqs=3,
        max_num_batched_tokens=9,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        max_num_queued_reqs=6,
    )
    contents = {n: RequestContents(tuple(range(5, 5 + length))) for n, length in enumerate(prompts)}
    expected = _serve(limits, contents, [])
    assert _serve(limits, contents, deaths) == expected


def _serve(limits: Limits, contents: dict[int, RequestContents], deaths: list[int]) -> dict[int, list[int]]:
    done: dict[int, list[int]] = {}
    live = dict(contents)
    for num_handovers, num_tokens in enumerate([*deaths, 10_000]):
        engine = Engine(limits)
        for number, held in live.items():
            engine.arrives(number, held, num_handovers)
        engine.run(num_tokens)
        for number, held in list(live.items()):
            first = len(held.output_token_ids) + 1
            assert engine.counts[number] == list(range(first, first + len(engine.counts[number])))
            tokens = engine.tokens[number][: first - 1 + len(engine.counts[number])]
            live[number] = held._replace(output_token_ids=tuple(tokens))
            if number not in engine.core.requests:
                done[number] = tokens
                del live[number]
    assert not live
    return done
