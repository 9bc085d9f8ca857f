"""/openapi.json and the readers of fields say the same: which fields there are, and where their bounds lie."""

from collections.abc import Callable
from typing import Any

import pytest

from daemon.errors import ApiError
from daemon.field_table import CHAT_FIELDS, COMPLETION_FIELDS, RESPONSES_FIELDS
from daemon.openai_api import KNOWN_FIELDS, read_chat, read_completion, read_response
from daemon.openapi import document
from daemon.question import Question
from daemon.refused_fields import REFUSABLE_FIELDS

V = 1_000
ENDPOINTS: list[tuple[Callable[..., Question], dict[str, Any], dict[str, Any]]] = [
    (read_completion, {"prompt": "x"}, COMPLETION_FIELDS),
    (read_chat, {"messages": [{"role": "user", "content": "x"}]}, CHAT_FIELDS),
    (read_response, {"input": "x"}, RESPONSES_FIELDS),
]
CONTEXT: dict[str, dict[str, Any]] = {"top_logprobs": {"logprobs": True}}  # what a field needs beside it


def is_taken(read: Callable[..., Question], body: dict[str, Any]) -> bool:
    try:
        read(body, V)
    except ApiError:
        return False
    return True


@pytest.mark.parametrize(("read", "least", "fields"), ENDPOINTS, ids=["completions", "chat", "responses"])
def test_every_field_that_is_told_of_is_read_and_its_bounds_are_the_readers(
    read: Callable[..., Question], least: dict[str, Any], fields: dict[str, Any]
) -> None:
    num_bounds = 0
    for name, schema in fields.items():
        around = {**least, **CONTEXT.get(name, {})}
        assert read({**around, name: least.get(name)}, V).unknown_fields == ()
        is_whole = "integer" in schema.get("type", ())
        for bound, outwards in (("minimum", -1), ("maximum", 1)):
            if bound in schema:
                step = outwards if is_whole else outwards * 0.001
                assert is_taken(read, {**around, name: schema[bound]}), (name, bound)
                assert not is_taken(read, {**around, name: schema[bound] + step}), (name, bound)
                num_bounds += 1
        if "exclusiveMinimum" in schema:
            assert not is_taken(read, {**around, name: schema["exclusiveMinimum"]})
        if "maxLength" in schema and name not in ("guided_regex", "guided_grammar"):
            assert is_taken(read, {**around, name: "x" * schema["maxLength"]}), name
            assert not is_taken(read, {**around, name: "x" * (schema["maxLength"] + 1)}), name
    assert num_bounds > 20


def test_every_field_that_is_read_is_told_of() -> None:
    known = set(COMPLETION_FIELDS) | set(CHAT_FIELDS)
    assert read_completion({"prompt": "x", "unheard_of": 1}, V).unknown_fields == ("unheard_of",)
    assert known | REFUSABLE_FIELDS == KNOWN_FIELDS | {"best_of", "tools", "tool_choice"}


def test_the_document_names_every_endpoint_that_clients_ask() -> None:
    told = document("1.0")
    assert told["openapi"] == "3.1.0"
    assert {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/tokenize",
        "/detokenize",
        "/v1/models",
    } <= set(told["paths"])


# what clients of OpenAI and of vLLM send, by endpoint; `user` and the like are in use, too
IN_USE_BY_BOTH = """model max_tokens temperature top_p n stop seed stream stream_options presence_penalty
    frequency_penalty logit_bias user top_k min_p repetition_penalty stop_token_ids ignore_eos min_tokens priority
    request_id return_token_ids response_format logprobs structured_outputs allowed_token_ids bad_words prompt_logprobs
    truncate_prompt_tokens include_stop_str_in_output skip_special_tokens length_penalty use_beam_search"""
IN_USE = {
    read_completion: f"{IN_USE_BY_BOTH} prompt echo suffix best_of add_special_tokens",
    read_chat: f"""{IN_USE_BY_BOTH} messages max_completion_tokens top_logprobs tools tool_choice parallel_tool_calls
        functions function_call modalities add_generation_prompt continue_final_message chat_template
        chat_template_kwargs documents""",
}


@pytest.mark.parametrize(("read", "least", "fields"), ENDPOINTS[:2], ids=["completions", "chat"])
def test_no_field_that_changes_an_answer_is_passed_over(
    read: Callable[..., Question], least: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Each is read, or refused by its name."""
    for name in IN_USE[read].split():
        if name in fields:
            continue
        assert name in REFUSABLE_FIELDS, name
        with pytest.raises(ApiError) as raised:
            read({**least, name: "unusual"}, V)
        assert raised.value.param == name
