"""Fields of a body: what is valid is understood, what is not is refused by name before anything begins."""

from typing import Any

import pytest

from daemon.errors import ApiError
from daemon.openai_api import MAX_SUFFIX_CHARS, read_chat, read_completion
from daemon.question import Question
from daemon.urgency import Urgency

V = 1_000  # size of the vocabulary
HELLO = [{"role": "user", "content": "hello"}]


def completion(**fields: Any) -> Question:
    return read_completion({"prompt": "hello", **fields}, V)


def chat(**fields: Any) -> Question:
    return read_chat({"messages": HELLO, **fields}, V)


def refusal(body: dict[str, Any], *, is_chat: bool = False) -> ApiError:
    with pytest.raises(ApiError) as raised:
        (read_chat if is_chat else read_completion)(body, V)
    assert raised.value.status == 400
    return raised.value


def test_a_bare_completion_has_the_apis_defaults() -> None:
    question = completion()
    assert question.prompts == ("hello",)
    assert question.max_output_tokens is None
    assert (question.sampling.temperature, question.sampling.top_p, question.sampling.top_k) == (1.0, 1.0, 0)
    assert (question.seed, question.num_logprobs, question.stream, question.is_chat) == (None, -1, False, False)


def test_every_field_of_both_endpoints_is_understood() -> None:
    common = {
        "model": "m",
        "temperature": 0,
        "top_p": 0.5,
        "n": 1,
        "stop": ["a", "b"],
        "seed": -(2**63),
        "stream": True,
        "stream_options": {"include_usage": True},
        "presence_penalty": -2,
        "frequency_penalty": 2.0,
        "logit_bias": {"7": -100, "5": 1.5},
        "user": "someone",
        "top_k": -1,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "stop_token_ids": [3, V - 1],
        "ignore_eos": True,
        "min_tokens": 2,
        "priority": 9,
        "ttft_target_ms": 300,
        "itl_target_ms": 40,
        "request_id": "my-id",
        "return_token_ids": True,
    }
    for question in (
        completion(**common, max_tokens=8, logprobs=0, echo=False, best_of=1, suffix=None),
        chat(**common, max_tokens=4, max_completion_tokens=8, logprobs=True, tools=[], tool_choice="none"),
    ):
        assert (question.model, question.max_output_tokens, question.seed) == ("m", 8, -(2**63))
        assert question.stop_strings == ("a", "b")
        assert question.logit_bias == ((5, 1.5), (7, -100.0))
        assert question.stop_token_ids == (3, V - 1)
        assert (question.stream, question.include_usage, question.return_token_ids) == (True, True, True)
        assert (question.urgency, question.request_id, question.num_logprobs) == (Urgency(9, 300, 40), "my-id", 0)
        assert question.sampling == (0.0, 0, 0.5, 0.1, 1.1, -2.0, 2.0, 0, 0, 2, True, -1)
        assert question.unknown_fields == ()


def test_null_counts_as_not_given() -> None:
    names: tuple[str, ...] = (
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "stream",
        "stream_options",
        "logit_bias",
    )
    names += ("top_k", "min_p", "stop_token_ids", "ignore_eos", "min_tokens", "priority", "logprobs", "echo", "user")
    assert completion(**dict.fromkeys(names)) == completion()


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("one", ("one",)),
        (["one"], ("one",)),
        (["one", "two"], ("one", "two")),
        ([0, V - 1], ((0, V - 1),)),
        ([[1, 2]], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["one", [2, 3]], ("one", (2, 3))),
    ],
)
def test_a_prompt_is_a_text_or_token_ids_or_a_list_of_them(prompt: Any, read: Any) -> None:
    assert completion(prompt=prompt).prompts == read


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("n", [0, -1, 1.5, "2", True, 1_000_000, 10**30]),
        ("max_tokens", [-1, 1.5, "8", True, 10_000_000_000, 2**70]),
        ("stream_options", ["yes", [], 5, True]),
        (
            "prompt",
            [[], [[]], 5, {}, None, True, 1.5, [1.5], [10, "a"], [True], [V], [-1], [2**63], [[1], []], ["a", 1]],
        ),
        ("stream", ["true", 1, []]),
        ("temperature", [-0.1, 2.1, "1", True, [], 1e400]),
        ("top_p", [0, 1.1, "1"]),
        ("top_k", [-2, 1.0, "5"]),
        ("min_p", [-0.1, 1.1]),
        ("repetition_penalty", [0, -1]),
        ("presence_penalty", [-2.1, 3]),
        ("frequency_penalty", [-2.1, 3]),
        ("stop", [1, [1], [""], "", ["a"] * 17, {}]),
        ("seed", [1.5, "1", 2**63, -(2**63) - 1, True]),
        ("stop_token_ids", [[V], [-1], [1.5], ["a"], [True], 5, list(range(V)) * 2]),
        ("logit_bias", [{"999999999": -100}, {"-1": 5}, {"abc": 1}, {"10": 1e9}, {"10": "x"}, [], {str(V): 1}, "x"]),
        ("logit_bias", [{"1": True}, {"1": None}, {"٣": 1}, {"1": 1, "01": 2}, {str(i): 1 for i in range(60_000)}]),
        ("ignore_eos", [1, "true"]),
        ("min_tokens", [-1, 1.5, "1"]),
        ("priority", [-1, 10, "high"]),
        ("ttft_target_ms", [-1, "soon", 10**9]),
        ("logprobs", [True, -1, 21, "1", 1.5]),
        ("request_id", ["a b", "é", "x" * 300, 5]),
        ("user", [5, []]),
        ("model", [5, []]),
        ("echo", [1, "true"]),
        ("best_of", [2, 0]),
        ("suffix", [5, ["end"], "x" * (MAX_SUFFIX_CHARS + 1)]),
        ("guided_json", [5, "{"]),
        ("messages", [HELLO]),
    ],
)
def test_an_invalid_value_is_refused_by_the_fields_name(field: str, values: list[Any]) -> None:
    for value in values:
        error = refusal({"prompt": "hello", "stream": True, field: value})
        assert error.param == field, (value, error.message)
        assert field in error.message
        assert len(error.message) < 400


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("n", [0, True]),
        ("best_of", [2]),
        ("max_completion_tokens", [0, "8", 1.5]),
        ("max_tokens", [0, -1, "8"]),
        ("messages", [None, [], "hello", {}, [1], [{}], [{"role": "user"}], [{"role": 5, "content": "x"}]]),
        ("messages", [[{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "image_url"}]}]]),
        ("logprobs", [1, "true"]),
        ("top_logprobs", [21, -1, True, 5]),
        ("tools", [[{"type": "function"}], {}, [{"type": "function", "function": {"name": 5}}]]),
        ("tool_choice", ["required", {"type": "function"}, 5, {"type": "function", "function": {"name": "x"}}]),
        ("response_format", [{"type": "xml"}, "text"]),
        ("prompt", ["hello"]),
    ],
)
def test_an_invalid_value_in_a_chat_is_refused_by_the_fields_name(field: str, values: list[Any]) -> None:
    for value in values:
        error = refusal({"messages": HELLO, field: value}, is_chat=True)
        assert error.param == field, (value, error.message)
        assert field in error.message


def test_usage_is_only_included_where_it_was_asked_for() -> None:
    assert not completion(stream=True).include_usage
    assert not completion(stream=True, stream_options={}).include_usage
    assert not completion(stream=True, stream_options=None).include_usage
    assert completion(stream=True, stream_options={"include_usage": True}).include_usage
    assert (
        refusal({"prompt": "x", "stream": True, "stream_options": {"include_usage": "yes"}}).param == "stream_options"
    )


def test_stream_options_without_a_stream_are_refused() -> None:
    assert refusal({"prompt": "x", "stream_options": {"include_usage": True}}).param == "stream_options"


def test_min_tokens_above_max_tokens_is_refused() -> None:
    assert refusal({"prompt": "x", "max_tokens": 4, "min_tokens": 5}).param == "min_tokens"


def test_text_parts_are_joined_and_other_fields_of_a_message_left_out() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    question = read_chat({"messages": [{"role": "user", "content": parts, "name": "x"}]}, V)
    assert question.messages == ({"role": "user", "content": "one\ntwo"},)


def test_alternatives_in_a_chat_are_counted_by_top_logprobs() -> None:
    assert chat(logprobs=True, top_logprobs=3).num_logprobs == 3
    assert chat(logprobs=True).num_logprobs == 0
    assert chat(logprobs=False).num_logprobs == -1
    assert completion(logprobs=20).num_logprobs == 20


def test_unknown_fields_are_let_through_and_named() -> None:
    assert completion(store=True, metadata={}).unknown_fields == ("store", "metadata")


def test_what_clients_send_by_default_is_no_reason_to_refuse() -> None:
    question = chat(
        response_format={"type": "text"}, tool_choice="auto", parallel_tool_calls=True, skip_special_tokens=True
    )
    assert question.unknown_fields == ()
