"""A prompt whose blocks are all cached still has a token to compute, and the answer stays the same bits (s13)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted, RequestFinished
from tests.integration.client import Stream, completion
from tests.integration.served import Served, serve
from tests.integration.trace import Life, Trace, check_steps, limits_of, trace_of

BLOCK_SIZE = 16
KEY = 40  # of the prompt's token, shared by all requests of the case


def of_length(num_prompt_tokens: int, output: int = 8, **fields: Any) -> dict[str, Any]:
    return completion(num_prompt_tokens, KEY, output=output, logprobs=1, **fields)


@pytest.mark.parametrize("budget", [512, 16])
def test_a_prompt_whose_blocks_are_all_cached_still_has_a_token_to_compute(tmp_path: Path, budget: int) -> None:
    flags = {"block_size": BLOCK_SIZE, "num_kv_blocks": 64, "max_num_seqs": 4, "max_num_batched_tokens": budget}
    with serve(tmp_path, **flags) as served:
        asyncio.run(ask_in_all_ways(served))
        limits = limits_of(served.daemon)
    trace = trace_of(served.daemon)
    check_steps(trace, limits)  # a block shared by two is free again once both have ended, not before
    assert max_blocks_shared(trace) >= 3, "no block was shared by two running requests: nothing was shown"
    admitted = admissions(trace)
    for life in trace.lives.values():
        check_first_rows(life, admitted[life.arrival.request].num_hit_blocks, budget)


async def ask_in_all_ways(served: Served) -> None:
    async with served.connect() as client:
        answers = [await client.ask(of_length(64)) for _ in range(3)]
        answers += await asyncio.gather(client.ask(of_length(64)), client.ask(of_length(64)))
        assert cached_tokens(await client.ask(of_length(63))) == 48
        assert cached_tokens(await client.ask(of_length(65))) == 64
        answers.append(await client.ask(of_length(64, output=1)))
        answers.append(await client.ask(of_length(64)))
        overlapping = client.send(of_length(64, stream=True, stream_options={"include_usage": True}))
        await overlapping.until_tokens(2)
        answers.append(await client.ask(of_length(64)))
        answers.append(await overlapping.until_end())
    check_answers(answers)


def check_answers(answers: list[Stream]) -> None:
    """Whether cold or cached, alone or in company: one text, the same bits, the true counts."""
    cold = answers[0]
    for answer in answers:
        assert answer.usage is not None
        assert answer.usage["prompt_tokens"] == 64
        assert answer.token_ids == cold.token_ids[: len(answer.token_ids)]
        assert cold.text.startswith(answer.text)
        assert cached_tokens(answer) == (0 if answer is cold else 48)
        assert first_logprob(answer) == first_logprob(cold)


def cached_tokens(answer: Stream) -> int:
    assert answer.usage is not None
    return int(answer.usage["prompt_tokens_details"]["cached_tokens"])


def first_logprob(answer: Stream) -> float:
    choices = answer.answer.get("choices") or [choice for event in answer.events for choice in event["choices"]]
    return float(choices[0]["logprobs"]["token_logprobs"][0])


def check_first_rows(life: Life, num_hit_blocks: int, budget: int) -> None:
    """From its hits on, the prefill computes every token of the prompt, at least one, in chunks within the budget."""
    computed = num_hit_blocks * BLOCK_SIZE
    assert computed < life.arrival.num_prompt_tokens
    for _position, _step, start, count in life.rows:
        if computed >= life.arrival.num_prompt_tokens:
            break
        assert start == computed
        assert 1 <= count <= budget
        computed += count
    assert computed == life.arrival.num_prompt_tokens


def admissions(trace: Trace) -> dict[int, RequestAdmitted]:
    """By request; nobody is preempted in this case, so each has one."""
    decisions = [decision for entry in trace.entries for decision in entry.decisions]
    return {decision.request: decision for decision in decisions if isinstance(decision, RequestAdmitted)}


def max_blocks_shared(trace: Trace) -> int:
    """The most blocks that two requests held at the same time."""
    held: dict[int, set[int]] = {}
    most = 0
    for entry in trace.entries:
        for decision in entry.decisions:
            if isinstance(decision, RequestAdmitted):
                blocks = set(decision.block_ids)
                most = max([most, *(len(blocks & others) for others in held.values())])
                held[decision.request] = blocks
            elif isinstance(decision, RequestFinished):
                held.pop(decision.request, None)
    return most
