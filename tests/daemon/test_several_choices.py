"""`n` and `best_of`: choices of one prompt share its blocks, have seeds of their own, and end together."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from daemon.choice_plan import ChoiceCounts, choice_seed, read_counts
from daemon.errors import ApiError
from engine.core.events import RequestArrived
from engine.core.vocabulary import Entry
from recorder.spans.trace_ids import TraceParent, parse_traceparent, span_id_of, trace_id_of
from tests.daemon.scripted_engine import FAILING
from tests.daemon.served import MODEL, Served, completion
from tests.daemon.test_server import Tell, shared_server, tell_alone

LONG = [number % 200 for number in range(64)]  # four blocks


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server(max_num_seqs=8, api_key="secret")


def test_each_choice_is_what_its_seed_gives_alone(tell: Tell) -> None:
    async def story(served: Served) -> None:
        status, together = await served.complete(prompt=LONG, n=4)
        assert status == 200
        assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
        texts = [choice["text"] for choice in together["choices"]]
        seeds = [choice_seed(7, place) for place in range(4)]
        assert seeds[0] == 7
        assert texts == [(await served.complete(prompt=LONG, seed=seed))[1]["choices"][0]["text"] for seed in seeds]
        assert len(set(texts)) == 4

    tell(story)


def test_a_prompt_counts_once_and_is_computed_once(tell: Tell) -> None:
    async def story(served: Served) -> None:
        prompt = [200, *LONG[1:]]
        totals = served.service.engine.timeline.totals
        computed = totals.prompt_tokens - totals.prefix_cache_hits
        _, answer = await served.complete(prompt=prompt, n=4, max_tokens=5)
        usage = answer["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (64, 20, 84)
        assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
        # the last block is computed anew, for its last token's logits
        assert totals.prompt_tokens - totals.prefix_cache_hits - computed == 64 + 3 * 16

    tell(story)


def test_choices_of_several_prompts_stand_prompt_by_prompt(tell: Tell) -> None:
    async def story(served: Served) -> None:
        prompts = [LONG, [4, 5]]
        alone = [(await served.complete(prompt=prompt, n=2))[1]["choices"] for prompt in prompts]
        _, together = await served.complete(prompt=prompts, n=2)
        assert [choice["text"] for choice in together["choices"]] == [
            choice["text"] for choices in alone for choice in choices
        ]
        assert together["usage"]["prompt_tokens"] == 66

    tell(story)


def test_a_stream_of_several_choices_tells_each_by_its_index_and_ends_it_once(tell: Tell) -> None:
    async def story(served: Served) -> None:
        _, whole = await served.complete(prompt=LONG, n=3)
        body = completion(prompt=LONG, n=3, stream_options={"include_usage": True})
        *chunks, last = [json.loads(line) for line in (await served.events("/v1/completions", body))[:-1]]
        texts, ends = ["", "", ""], [0, 0, 0]
        for chunk in chunks:
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["text"]
                ends[choice["index"]] += choice["finish_reason"] is not None
        assert texts == [choice["text"] for choice in whole["choices"]]
        assert ends == [1, 1, 1]
        assert last["usage"]["prompt_tokens"] == 64
        assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]

    tell(story)


def test_the_openai_client_reads_several_choices_of_a_chat(tell: Tell) -> None:
    async def story(served: Served) -> None:
        messages: list[Any] = [{"role": "user", "content": "hello, " * 10}]
        async with openai.AsyncOpenAI(base_url=f"{served.base_url}/v1", api_key="secret", max_retries=0) as client:
            chat = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=5, n=3)
            assert [choice.index for choice in chat.choices] == [0, 1, 2]
            opened = set()
            async for chunk in await client.chat.completions.create(
                model=MODEL, messages=messages, max_tokens=5, n=3, stream=True
            ):
                opened |= {choice.index for choice in chunk.choices if choice.delta.role == "assistant"}
            assert opened == {0, 1, 2}

    tell(story)


def test_a_client_that_leaves_ends_all_choices(tell: Tell) -> None:
    async def story(served: Served) -> None:
        body = completion(prompt=LONG, n=4, max_tokens=400, stream=True)
        async with served.session.post("/v1/completions", json=body) as response:
            await response.content.readline()
            await served.until(lambda: len(served.service.engine.live) == 4)
        await served.until(lambda: not len(served.service.engine.live))

    tell(story)


def test_a_choice_that_fails_ends_the_whole_call_with_its_error(tell: Tell) -> None:
    async def story(served: Served) -> None:
        status, answer = await served.complete(prompt=[*LONG, FAILING], n=3)
        assert (status, answer["error"]["code"]) == (500, "step_failed")
        await served.until(lambda: not len(served.service.engine.live))

    tell(story)


def test_a_choice_that_finds_the_queue_full_ends_the_whole_call() -> None:
    async def story(served: Served) -> None:
        status, answer = await served.complete(prompt=LONG, n=8, max_tokens=100)
        assert (status, answer["error"]["code"]) == (503, "queue_full")
        lines = await served.events("/v1/completions", completion(prompt=LONG, n=8, max_tokens=100))
        assert json.loads(lines[-2])["error"]["code"] == "queue_full"
        assert lines[-1] == "[DONE]"
        await served.until(lambda: not len(served.service.engine.live))

    tell_alone(story, max_num_seqs=1, max_num_queued_reqs=2)


def test_best_of_answers_with_the_likeliest_and_counts_all(tell: Tell) -> None:
    async def story(served: Served) -> None:
        _, answer = await served.complete(prompt=LONG, n=2, best_of=4, max_tokens=5)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1]
        assert answer["usage"]["completion_tokens"] == 20

    tell(story)
    means = [-2.0, -1.0, -1.0, -3.0, -1.0, -2.0, -0.5, -0.5]
    assert ChoiceCounts(2, 4).told(means) == [1, 2, 6, 7]
    assert ChoiceCounts(1, 4).told(means) == [1, 6]
    assert ChoiceCounts(2, 2).told(means) == list(range(8))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 129}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"n": 1, "best_of": 2, "stream": True}, "best_of"),
        ({"n": 65, "num_prompts": 2}, "n"),
        ({"n": 1, "best_of": 65, "num_prompts": 2}, "best_of"),
    ],
)
def test_counts_that_cannot_be_are_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        read_counts(body, body.get("num_prompts", 1), is_chat=False, stream=body.get("stream", False))
    assert raised.value.param == param


def test_the_choices_of_a_call_are_one_trace_below_the_first_and_count_once(tell: Tell) -> None:
    arrivals: list[RequestArrived] = []

    class Arrivals:
        def begin_engine(self, info: dict[str, Any]) -> None: ...

        def apply(self, entry: Entry) -> None:
            if isinstance(entry.event, RequestArrived):
                arrivals.append(entry.event)

    async def story(served: Served) -> None:
        engine = served.service.engine
        counted = engine.timeline.totals.request_params_n
        before = counted.count, counted.sum
        engine.readings.append(Arrivals())
        given = f"00-{7:032x}-{9:016x}-00"
        for headers in ({}, {"traceparent": given}):
            status, _ = await served.post("/v1/completions", completion(prompt=LONG, n=3), headers=headers)
            assert status == 200
        engine.readings.pop()
        assert (counted.count - before[0], counted.sum - before[1]) == (2, 6)

    tell(story)
    assert [arrived.num_choices for arrived in arrivals] == [3, 0, 0] * 2
    for call, sampled in ((arrivals[:3], "01"), (arrivals[3:], "00")):
        first, *others = call
        spans = [span_id_of(arrived.request_id, arrived.arrival_ns, 0) for arrived in call]
        assert len({trace_id_of(each.request_id, each.arrival_ns, each.trace_context) for each in call}) == 1
        assert len(set(spans)) == 3
        assert {parse_traceparent(arrived.trace_context) for arrived in others} == {
            TraceParent(trace_id_of(first.request_id, first.arrival_ns, first.trace_context), spans[0], sampled == "01")
        }
    assert {arrived.trace_context[3:35] for arrived in arrivals[3:]} == {f"{7:032x}"}
