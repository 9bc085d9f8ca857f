"""Preemption changes nobody's text: seeded draws go on where they were (s03), a victim leaves its step (s04).

Blocks of four tokens bring many block boundaries, and so many moments at which blocks run out, into short answers.
"""

import asyncio
from typing import Any

import pytest

from engine.core.decisions import FinishReason, PreemptMode, PreemptReason, RequestAdmitted, RequestPreempted
from tests.integration.client import Stream, completion
from tests.integration.served import Served, serve
from tests.integration.trace import Life, Trace, check_steps, limits_of, trace_of, until_ended

FLAGS = {"block_size": 4, "max_model_len": 512, "max_num_seqs": 4, "reserve_output": "none", "thrash_bound_permille": 0}
NUM_BLOCKS, NUM_ROOMY_BLOCKS = 8, 256

MAX_TRIES = 12  # of what depends on when a request reaches the engine

NUM_SEEDED = 16
NUM_LOW, NUM_HIGH = 13, 4
BODIES: dict[str, dict[str, Any]] = {
    "a": completion(9, 1, output=NUM_SEEDED, stream=True, temperature=0.9, seed=1234),
    "b": completion(9, 2, output=NUM_SEEDED, stream=True, temperature=0.9, seed=99),
    "low1": completion(6, 3, output=NUM_LOW, stream=True),
    "low2": completion(6, 4, output=NUM_LOW, stream=True),
    "high": completion(15, 5, output=NUM_HIGH, stream=True, priority=0),
}
Answer = tuple[str, list[int]]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Each request's answer when it is alone and has room; the tests that use it compare the tokens."""
    flags = {"num_kv_blocks": NUM_ROOMY_BLOCKS, "enable_prefix_caching": False, **FLAGS}
    with serve(tmp_path_factory.mktemp("roomy"), **flags) as served:

        async def one_after_the_other() -> dict[str, Answer]:
            async with served.connect() as client:
                return {name: answer_of(await client.ask(body)) for name, body in BODIES.items()}

        answers = asyncio.run(one_after_the_other())
        trace = trace_of(served.daemon)
        assert trace.preemptions() == []
        assert max(len(plan.rows) for _position, plan in trace.plans) == 1
    return answers


def answer_of(stream: Stream) -> Answer:
    assert stream.status == 200, stream.answer
    assert stream.finish_reason == "length"
    return stream.text, stream.token_ids


# ── s03 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({"enable_prefix_caching": False}, id="whole-prefill"),
        pytest.param({"enable_prefix_caching": True, "max_num_batched_tokens": 4}, id="prefix-cache-and-chunks"),
        pytest.param({"enable_prefix_caching": False, "scheduling_policy": "fair"}, id="fair"),
        pytest.param({"enable_prefix_caching": False, "swap_space": "16MiB"}, id="swap"),
    ],
)
def test_a_seeded_request_gives_the_same_text_with_and_without_preemption(
    tmp_path_factory: pytest.TempPathFactory, references: dict[str, Answer], flags: dict[str, Any]
) -> None:
    with serve(tmp_path_factory.mktemp("seeded"), num_kv_blocks=NUM_BLOCKS, **FLAGS, **flags) as served:
        for first, second in (("a", "b"), ("b", "a")):  # the newer one gives way: each is the victim once
            for number in range(MAX_TRIES):  # on a busy machine the first may end before the second came
                trace = asyncio.run(run_both(served, first, second, number, references))
                victim = trace[f"{second}-second-{number}"]
                finds_its_like = victim.finish.num_cached_tokens > 0  # unless that had to make room meanwhile
                is_cold = first == "b" and flags["enable_prefix_caching"] and not finds_its_like
                if victim.preemptions and had_sampled(victim) and not is_cold:
                    break
            assert victim.preemptions, "no preemption: the run proves nothing"
            assert had_sampled(victim), "it had sampled no token: it had none to draw again"
            for life in trace.lives.values():
                assert life.counts == list(range(1, NUM_SEEDED + 1)), "the draws have a gap or a repeat"
        check_steps(trace, limits_of(served.daemon))
        swaps = [preemption for preemption in trace.preemptions() if preemption.mode == PreemptMode.SWAP]
        assert bool(swaps) == ("swap_space" in flags)  # the first victim's at least: no copy was measured before it
        if flags["enable_prefix_caching"]:
            assert victim.finish.num_cached_tokens > 0
            assert min(start for _position, _step, start, _count in victim.rows) > 0
            newcomer = trace["a-first-0"]
            assert sum(step <= newcomer.token_steps[0] for step in newcomer.steps) >= 3, (
                "it was not prefilled in chunks"
            )


def had_sampled(victim: Life) -> bool:
    """When it was first preempted; a swapped victim keeps what it had computed."""
    first_time = victim.preemptions[0]
    return first_time.mode == PreemptMode.SWAP or first_time.num_tokens_lost > victim.arrival.num_prompt_tokens


async def run_both(served: Served, first: str, second: str, number: int, references: dict[str, Answer]) -> Trace:
    ids = [f"{first}-first-{number}", f"{second}-second-{number}"]
    async with served.connect() as client:
        streams = []
        for request_id, name in zip(ids, (first, second), strict=True):
            body = BODIES[name] | {"stream_options": {"include_usage": True}}
            streams.append(client.send(body, headers={"X-Request-Id": request_id}))
            await streams[-1].until_accepted()
        for stream, name in zip(streams, (first, second), strict=True):
            assert answer_of(await stream.until_end()) == references[name]
            assert stream.usage is not None
            assert stream.usage["completion_tokens"] == NUM_SEEDED
    return await until_ended(served.daemon, *ids)


# ── s04 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

MOMENTS = (1, 3, 5)  # low1's tokens when `high` is sent
LATEST_MOMENT = 8  # when `high` comes later than that, it may rightly end last
NUM_PLACED_VICTIMS = 2
MAX_PAIRS = 40  # nearly every pair brings one
VICTIM_LAST, VICTIM_FIRST = (9, 9), (9, 8)  # the classes of low1 and low2, which run in this order; 0 is most urgent


def test_a_victim_leaves_the_step_it_was_placed_in(
    tmp_path_factory: pytest.TempPathFactory, references: dict[str, Answer]
) -> None:
    flags = {"scheduling_policy": "priority", "enable_prefix_caching": False, "num_kv_blocks": NUM_BLOCKS}
    with serve(tmp_path_factory.mktemp("priority"), **FLAGS, **flags) as served:
        for classes in (VICTIM_LAST, VICTIM_FIRST):
            for moment in MOMENTS:
                tries = (asyncio.run(run_three(served, classes, moment, n, references)) for n in range(MAX_TRIES))
                assert any(tries), "the machine was too busy to send a request in time"
        trace = trace_of(served.daemon)
        for number in range(MAX_PAIRS):  # whether `high` let victims stand there depends on the machine's speed
            if num_placed_victims(trace) >= NUM_PLACED_VICTIMS:
                break
            asyncio.run(run_pair(served, number, references))
            trace = trace_of(served.daemon)
        check_steps(trace, limits_of(served.daemon))
        reasons = {preemption.reason for preemption in trace.preemptions()}
        assert reasons == {PreemptReason.MORE_URGENT_WAITS, PreemptReason.OUT_OF_BLOCKS}
        assert num_placed_victims(trace) >= NUM_PLACED_VICTIMS, (
            "no victim stood before the request that needed its blocks"
        )


async def run_three(
    served: Served, classes: tuple[int, int], moment: int, number: int, references: dict[str, Answer]
) -> bool:
    """Checks what must hold whenever `high` came; False when it came too late, or low2 did, for the rest."""
    name = f"{classes[0]}{classes[1]}-after-{moment}-try-{number}"
    async with served.connect() as client:
        low1 = client.send(BODIES["low1"] | {"priority": classes[0]}, headers={"X-Request-Id": f"low1-{name}"})
        await low1.until_accepted()
        low2 = client.send(BODIES["low2"] | {"priority": classes[1]}, headers={"X-Request-Id": f"low2-{name}"})
        await low1.until_tokens(moment)
        high = client.send(BODIES["high"], headers={"X-Request-Id": f"high-{name}"})
        for stream, request in ((low1, "low1"), (low2, "low2"), (high, "high")):
            assert answer_of(await stream.until_end()) == references[request]
    trace = await until_ended(served.daemon, *[f"{request}-{name}" for request in ("low1", "low2", "high")])
    lives = [trace[f"{request}-{name}"] for request in ("low1", "low2", "high")]
    for life, num_tokens in zip(lives, (NUM_LOW, NUM_LOW, NUM_HIGH), strict=True):
        assert life.finish.reason == FinishReason.LENGTH
        assert life.counts == list(range(1, num_tokens + 1))
    assert lives[2].preemptions == []
    began = lives[2].steps[0]
    if lives[1].steps[0] >= began or sum(step < began for step in lives[0].token_steps) > LATEST_MOMENT:
        return False
    assert lives[2].ended_at < max(lives[0].ended_at, lives[1].ended_at), "high did not end before one of the others"
    assert lives[0].preemptions or lives[1].preemptions, "no preemption: the run proves nothing"
    return True


async def run_pair(served: Served, number: int, references: dict[str, Answer]) -> None:
    """The first is less urgent, and has the shorter prompt: the second runs out of blocks, and takes the first's."""
    names = {f"{request}-pair-{number}": request for request in ("low1", "a")}
    async with served.connect() as client:
        streams = [
            client.send(BODIES[request] | {"priority": priority}, headers={"X-Request-Id": request_id})
            for (request_id, request), priority in zip(names.items(), VICTIM_FIRST, strict=True)
        ]
        for stream, request in zip(streams, names.values(), strict=True):
            assert answer_of(await stream.until_end()) == references[request]
    await until_ended(served.daemon, *names)


def num_placed_victims(trace: Trace) -> int:
    """Victims that stood before their beneficiary in the running list, so that the pass had already placed them."""
    admitted_at: dict[int, tuple[int, int]] = {}
    num_placed = 0
    for entry in trace.entries:
        for index, decision in enumerate(entry.decisions):
            if isinstance(decision, RequestAdmitted):
                admitted_at[decision.request] = (entry.sequence, index)
            elif isinstance(decision, RequestPreempted) and decision.reason == PreemptReason.OUT_OF_BLOCKS:
                num_placed += admitted_at[decision.request] < admitted_at[decision.for_request]
    return num_placed
