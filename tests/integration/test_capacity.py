"""What is larger than the KV pool, from the start (s01) or by growing (s02), ends by itself and harms nobody.

One pool of 128 token places serves both cases.
"""

import asyncio
from collections.abc import Iterator

import pytest

from engine.core.decisions import FinishReason, RejectReason, RequestRejected
from tests.integration.client import Stream, completion
from tests.integration.served import Served, serve
from tests.integration.trace import Trace, check_steps, limits_of, trace_of, until_ended

BLOCK_SIZE, NUM_BLOCKS = 16, 8
NUM_SLOTS = BLOCK_SIZE * NUM_BLOCKS
REFUSED_WITHIN_S, SMALL_WITHIN_S, ENDED_WITHIN_S = 5, 20, 30


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    flags = {"block_size": BLOCK_SIZE, "num_kv_blocks": NUM_BLOCKS, "max_model_len": 1024, "max_num_seqs": 4}
    with serve(tmp_path_factory.mktemp("capacity"), enable_prefix_caching=False, **flags) as served:
        yield served
        check_steps(trace_of(served.daemon), limits_of(served.daemon))


def test_a_prompt_larger_than_the_pool_is_refused_and_holds_up_nobody(served: Served) -> None:
    async def case() -> None:
        async with served.connect() as client:
            big = client.send(completion(400, 1, output=8), headers={"X-Request-Id": "big"})
            await asyncio.sleep(0.2)
            small = client.send(completion(10, 2, output=8), headers={"X-Request-Id": "small"})
            await big.until_end(REFUSED_WITHIN_S)
            await small.until_end(SMALL_WITHIN_S)
            assert small.status == 200
            assert len(small.token_ids) == 8
            check_nobody_waits(served)

            chat = {"messages": [{"role": "user", "content": " the" * 400}], "max_tokens": 8, "stream": True}
            big_stream = client.send(chat, path="/v1/chat/completions", headers={"X-Request-Id": "big-stream"})
            await big_stream.until_end(REFUSED_WITHIN_S)
            check_nobody_waits(served)

            trace = await until_ended(served.daemon, "big", "big-stream", "small")
            assert check_refused(trace, big, "big") == 400
            assert check_refused(trace, big_stream, "big-stream") > 400

    asyncio.run(case())


def check_refused(trace: Trace, stream: Stream, name: str) -> int:
    """Answered before anything was streamed, with the figures; recorded once, in no step. Returns the tokens asked."""
    life = trace[name]
    refusal = life.end
    assert isinstance(refusal, RequestRejected)
    assert refusal.reason == RejectReason.EXCEEDS_KV_CACHE
    assert life.ended_at == life.arrived_at, "the refusal is the answer to the arrival itself"
    assert life.rows == []
    assert refusal.limit == NUM_SLOTS
    assert 400 <= stream.status < 500
    assert stream.events == []
    assert stream.error is not None
    assert f" {refusal.asked} " in stream.error["message"]
    assert f" {refusal.limit}" in stream.error["message"]
    return refusal.asked


def test_an_answer_that_would_outgrow_the_pool_ends_with_a_reason_and_a_true_count(served: Served) -> None:
    async def case() -> None:
        async with served.connect() as client:
            body = completion(120, 3, output=100, stream=True, stream_options={"include_usage": True})
            edge = await client.send(body, headers={"X-Request-Id": "edge"}).until_end(ENDED_WITHIN_S)
            assert edge.status == 200
            assert edge.is_done
            assert edge.finish_reason == "length"
            assert edge.usage is not None
            assert edge.usage["completion_tokens"] == len(edge.token_ids) > 0
            check_nobody_waits(served)

    asyncio.run(case())


def test_the_only_running_request_is_ended_when_the_pool_is_full(served: Served) -> None:
    async def case() -> None:
        async with served.connect() as client:
            body = completion(100, 4, output=100, stream=True, stream_options={"include_usage": True})
            grow = await client.send(body, headers={"X-Request-Id": "grow"}).until_end(ENDED_WITHIN_S)
            assert grow.is_done
            assert grow.finish_reason == "length"
            assert grow.error is None
            assert grow.usage is not None
            assert grow.usage["prompt_tokens"] == 100
            assert grow.usage["completion_tokens"] == len(grow.token_ids)
            one_block_in_reserve, last_token_without_slot = NUM_SLOTS - BLOCK_SIZE - 100, NUM_SLOTS + 1 - 100
            assert one_block_in_reserve <= len(grow.token_ids) <= last_token_without_slot

            after = await client.ask(completion(10, 5, output=8))
            assert after.status == 200
            assert len(after.token_ids) == 8

            trace = await until_ended(served.daemon, "grow")
            assert trace["grow"].preemptions == []
            assert trace["grow"].finish.reason == FinishReason.KV_CACHE_EXHAUSTED

    asyncio.run(case())


def check_nobody_waits(served: Served) -> None:
    assert served.daemon.metrics()["vllm:num_requests_waiting"] == 0
