"""A prompt's log-probabilities over HTTP: `echo` with `logprobs`, and vLLM's `prompt_logprobs`; whole and streamed."""

import json
from collections.abc import Iterator
from typing import Any

import msgpack
import openai
import pytest

from daemon.mailbox import PromptTold
from daemon.prompt_logprobs import MAX_TOLD
from daemon.resumables import item_of
from engine.core.contents import PromptLogprobs, TokenOutput
from engine.core.decisions import FinishReason, RequestFinished
from engine.core.events import StepCompleted
from engine.core.vocabulary import Entry
from tests.daemon.served import MODEL, Served, completion
from tests.daemon.test_engine_crash import kill_engine
from tests.daemon.test_server import Tell, shared_server, tell_alone

PROMPT = list(b"abcdefghijklmnopqrstuvwxyz")  # two blocks and a part of one
OTHER = list(b"xyz")


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    yield from shared_server(max_num_seqs=8, api_key="secret")


def test_an_echo_with_logprobs_has_the_prompts_tokens_before_the_answers(tell: Tell) -> None:
    async def story(served: Served) -> None:
        _, plain = await served.complete(prompt=PROMPT, logprobs=2)
        status, answer = await served.complete(prompt=PROMPT, echo=True, logprobs=2)
        assert status == 200
        (choice,) = answer["choices"]
        assert choice["text"] == "abcdefghijklmnopqrstuvwxyz" + plain["choices"][0]["text"]
        raw = choice["logprobs"]
        assert raw["tokens"][:3] == ["a", "b", "c"]
        assert len(raw["tokens"]) == len(PROMPT) + 8
        assert raw["token_logprobs"][0] is raw["top_logprobs"][0] is None
        assert all(value < 0 for value in raw["token_logprobs"][1:])
        assert all(len(top) == 2 for top in raw["top_logprobs"][1 : len(PROMPT)])
        assert raw["text_offset"][: len(PROMPT) + 1] == list(range(len(PROMPT) + 1))
        assert raw["tokens"][len(PROMPT) :] == plain["choices"][0]["logprobs"]["tokens"]

    tell(story)


def test_the_list_of_vllm_has_each_token_first_and_the_likeliest_beside_it(tell: Tell) -> None:
    async def story(served: Served) -> None:
        _, answer = await served.complete(prompt=PROMPT, prompt_logprobs=3)
        choice = answer["choices"][0]
        assert choice["logprobs"] is None
        first, *others = choice["prompt_logprobs"]
        assert first is None
        for token_id, told in zip(PROMPT[1:], others, strict=True):
            assert next(iter(told)) == str(token_id)
            assert set(told[str(token_id)]) == {"logprob", "rank", "decoded_token"}
            assert len(told) in (3, 4)
        _, own = await served.complete(prompt=PROMPT, prompt_logprobs=0)
        assert all(list(told) == [str(token_id)] for token_id, told in _listed(own))
        _, both = await served.complete(prompt=PROMPT, prompt_logprobs=3, echo=True, logprobs=1)
        assert both["choices"][0]["prompt_logprobs"] == choice["prompt_logprobs"]
        assert max(len(top) for top in both["choices"][0]["logprobs"]["top_logprobs"][1 : len(PROMPT)]) == 1

    tell(story)


def test_a_chat_has_one_list_beside_its_choices(tell: Tell) -> None:
    async def story(served: Served) -> None:
        chat: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "n": 2}
        _, answer = await served.post("/v1/chat/completions", {**chat, "prompt_logprobs": 1})
        assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
        assert all("prompt_logprobs" not in choice for choice in answer["choices"])
        chunks = await _chunks(served, "/v1/chat/completions", {**chat, "prompt_logprobs": 1})
        told = [chunk for chunk in chunks if "prompt_logprobs" in chunk]
        assert [chunk["prompt_logprobs"] for chunk in told] == [answer["prompt_logprobs"]]
        openings = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["delta"].get("role")]
        assert [choice["index"] for choice in openings] == [0, 1]
        assert told[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        _, without = await served.post("/v1/chat/completions", chat)
        assert "prompt_logprobs" not in without

    tell(story)


@pytest.mark.parametrize("fields", [{"echo": True, "logprobs": 2}, {"prompt_logprobs": 2}, {"echo": True}])
@pytest.mark.parametrize("max_tokens", [0, 4])
@pytest.mark.parametrize("n", [1, 2])
def test_a_stream_tells_what_a_whole_answer_tells(tell: Tell, fields: dict[str, Any], max_tokens: int, n: int) -> None:
    async def story(served: Served) -> None:
        body = completion(prompt=[PROMPT, OTHER], n=n, max_tokens=max_tokens, **fields)
        _, whole = await served.post("/v1/completions", body)
        choices: list[dict[str, Any]] = [
            {"text": "", "logprobs": {}, "prompt_logprobs": None, "finish_reason": None} for _ in whole["choices"]
        ]
        for chunk in await _chunks(served, "/v1/completions", body):
            (part,) = chunk["choices"]
            choice = choices[part["index"]]
            choice["text"] += part["text"]
            for name, column in (part["logprobs"] or {}).items():
                choice["logprobs"].setdefault(name, []).extend(column)
            choice["prompt_logprobs"] = part.get("prompt_logprobs") or choice["prompt_logprobs"]
            choice["finish_reason"] = part["finish_reason"]
        for choice, expected in zip(choices, whole["choices"], strict=True):
            assert choice["text"] == expected["text"]
            assert (choice["logprobs"] or None) == expected["logprobs"]
            assert choice["prompt_logprobs"] == expected.get("prompt_logprobs")
            assert choice["finish_reason"] == expected["finish_reason"] == "length"

    tell(story)


def test_nothing_but_the_prompt_can_be_asked_for(tell: Tell) -> None:
    async def story(served: Served) -> None:
        status, answer = await served.complete(prompt=[PROMPT, OTHER], echo=True, logprobs=1, max_tokens=0)
        assert status == 200
        assert answer["usage"]["completion_tokens"] == 0
        assert [choice["text"] for choice in answer["choices"]] == ["abcdefghijklmnopqrstuvwxyz", "xyz"]
        assert [len(choice["logprobs"]["tokens"]) for choice in answer["choices"]] == [len(PROMPT), len(OTHER)]
        status, plain = await served.complete(prompt=OTHER, max_tokens=0)
        assert (status, plain["choices"][0]["text"], plain["choices"][0]["finish_reason"]) == (200, "", "length")

    tell(story)


def test_a_likelihood_is_summed_as_evaluation_tools_do(tell: Tell) -> None:
    """lm-eval's way with `local-completions`: context and continuation as tokens, the last column is the answer's."""

    async def story(served: Served) -> None:
        client = openai.AsyncOpenAI(base_url=f"{served.base_url}/v1", api_key="secret")
        contexts = [(PROMPT[:20], PROMPT[20:]), (OTHER[:1], OTHER[1:])]
        prompts = [context + continuation for context, continuation in contexts]
        answer = await client.completions.create(
            model=MODEL, prompt=prompts, max_tokens=1, temperature=0, logprobs=1, echo=True, seed=1
        )
        for choice, (context, continuation) in zip(answer.choices, contexts, strict=True):
            assert choice.logprobs is not None
            logprobs = (choice.logprobs.token_logprobs or [])[len(context) : -1]
            tops = (choice.logprobs.top_logprobs or [])[len(context) : -1]
            assert len(logprobs) == len(tops) == len(continuation)
            assert sum(value for value in logprobs if value is not None) < 0
            assert all(len(top) == 1 for top in tops)
        await client.close()

    tell(story)


def test_prefix_hits_are_not_taken_and_change_nothing(tell: Tell) -> None:
    async def story(served: Served) -> None:
        prompt = [7, *PROMPT]
        _, cold = await served.complete(prompt=prompt, prompt_logprobs=2)
        _, warm = await served.complete(prompt=prompt, prompt_logprobs=2)
        assert cold["choices"] == warm["choices"]
        assert warm["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        _, other = await served.complete(prompt=prompt)
        assert other["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}, "its blocks serve others"

    tell(story)


def test_a_digest_of_them_is_recorded_once(tell: Tell) -> None:
    async def story(served: Served) -> None:
        digests: list[tuple[int, int, int]] = []

        class Reading:
            def begin_engine(self, info: dict[str, Any]) -> None:
                pass

            def apply(self, entry: Entry) -> None:
                if isinstance(entry.event, StepCompleted):
                    digests.extend(entry.event.prompt_logprobs)

        served.service.engine.readings.append(Reading())
        await served.complete(prompt=PROMPT, prompt_logprobs=2, n=2)
        await served.complete(prompt=PROMPT, prompt_logprobs=2, max_tokens=0)
        await served.complete(prompt=PROMPT)
        assert [(num_tokens, digest) for _request, num_tokens, digest in digests] == [(25, digests[0][2])] * 2

    tell(story)


def test_more_than_an_answer_holds_is_refused_with_the_figures(tell: Tell) -> None:
    async def story(served: Served) -> None:
        prompts = [[number % 200 for number in range(500)]] * 26
        assert MAX_TOLD < 26 * 500 * 21
        status, answer = await served.complete(prompt=prompts, prompt_logprobs=20)
        assert (status, answer["error"]["param"]) == (400, "prompt_logprobs")
        assert str(MAX_TOLD) in answer["error"]["message"]
        status, answer = await served.post(
            "/v1/responses", {"input": "hello", "prompt_logprobs": 1, "max_output_tokens": 1}
        )
        assert (status, answer["error"]["param"]) == (400, "prompt_logprobs")

    tell(story)


def test_a_request_that_is_handed_over_tells_them_once() -> None:
    async def story(served: Served) -> None:
        body = completion(prompt=[PROMPT], max_tokens=200, echo=True, logprobs=2)
        _, expected = await served.post("/v1/completions", body)
        async with served.session.post("/v1/completions", json={**body, "stream": True}) as response:
            begun = await response.content.readuntil(b"\n\n")
            await kill_engine(served)
            lines = (begun + await response.read()).decode().splitlines()
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
        tokens = [token for chunk in chunks for token in chunk["choices"][0]["logprobs"]["tokens"]]
        assert tokens == expected["choices"][0]["logprobs"]["tokens"]

    tell_alone(story)


def test_a_stream_that_is_resumed_tells_its_prompt_where_it_stood(tell: Tell) -> None:
    async def story(served: Served) -> None:
        body = completion(prompt=PROMPT, max_tokens=6, echo=True, logprobs=1, prompt_logprobs=2, stream=True)
        given = {"X-Request-Id": "resumed", "X-Reprise-Resume-Seconds": "60"}
        async with served.session.post("/v1/completions", json=body, headers=given) as response:
            whole = await response.read()
        for last_id in ("", "0", "3"):
            async with served.session.get("/v1/streams/resumed", headers={"Last-Event-ID": last_id}) as response:
                told = await response.read()
            assert whole.endswith(told)
            assert (b"prompt_logprobs" in told) == (last_id == "")

    tell(story)


def test_what_a_daemon_has_written_of_a_prompt_is_read_by_the_next() -> None:
    told = PromptTold((5, 6), PromptLogprobs(3, 1, b"abcd", b"efgh", b"ijkl", b"mnop"))
    ended = RequestFinished(3, FinishReason.STOP, 1, 2, 3, 4, 5)
    for item in (told, TokenOutput(3, 7, -1.0), ended):
        assert item_of(msgpack.unpackb(msgpack.packb(tuple(item)), use_list=False)) == item


def _listed(answer: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return list(zip(PROMPT[1:], answer["choices"][0]["prompt_logprobs"][1:], strict=True))


async def _chunks(served: Served, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    lines = await served.events(path, body)
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
