"""What clients of vLLM and of OpenAI send beside the plain case: taken as they mean it, or refused by its name."""

import json
from typing import Any

import pytest

from daemon.chat_messages import read_messages
from daemon.errors import ApiError
from daemon.json_body import parse_object
from daemon.openai_api import read_chat, read_completion
from tests.daemon.served import Served, completion
from tests.daemon.test_server import tell_alone

HELLO: Any = [{"role": "user", "content": "hello"}]
CHAT_FIELDS_AS_NULL = """max_tokens max_completion_tokens temperature top_p n stop seed stream stream_options user tools
    presence_penalty frequency_penalty logit_bias top_k min_p repetition_penalty stop_token_ids ignore_eos min_tokens
    priority request_id return_token_ids logprobs top_logprobs response_format tool_choice parallel_tool_calls functions
    function_call modalities audio reasoning_effort chat_template_kwargs add_generation_prompt continue_final_message
    documents chat_template guided_json guided_regex guided_choice guided_grammar structured_outputs bad_words echo
    allowed_token_ids truncate_prompt_tokens skip_special_tokens spaces_between_special_tokens length_penalty
    include_stop_str_in_output use_beam_search add_special_tokens return_tokens_as_token_ids logits_processors
    include_reasoning web_search_options"""


def test_a_chat_whose_every_other_field_is_null_is_the_plain_one() -> None:
    nulls = dict.fromkeys(CHAT_FIELDS_AS_NULL.split())
    assert read_chat({"messages": HELLO, **nulls}, 1000) == read_chat({"messages": HELLO}, 1000)


@pytest.mark.parametrize(
    "content",
    [
        ["hello"],
        [{"type": "text", "text": "hello"}],
        [{"type": "input_text", "text": "hello"}],
        [{"type": "output_text", "text": "hello", "annotations": []}],
        [{"type": "refusal", "refusal": "hello"}],
    ],
)
def test_texts_are_read_by_whatever_name_they_come(content: Any) -> None:
    (message,) = read_messages({"messages": [{"role": "assistant", "content": content}]})
    assert message == {"role": "assistant", "content": "hello"}


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url", "", None, 5, []])
def test_parts_that_are_no_text_are_refused(kind: Any) -> None:
    with pytest.raises(ApiError, match="other parts are not supported"):
        read_messages({"messages": [{"role": "user", "content": [{"type": kind, "text": "x", "": "x"}]}]})


def test_an_empty_answer_may_come_back_as_null_and_nothing_else_may() -> None:
    for message in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        assert read_messages({"messages": [*HELLO, message]})[1] == {"role": "assistant", "content": ""}
    with pytest.raises(ApiError, match="needs a content"):
        read_messages({"messages": [{"role": "user", "content": None}]})


@pytest.mark.parametrize(
    ("name", "harmless", "meant"),
    [
        ("web_search_options", None, {}),
        ("audio", None, {"voice": "x"}),
        ("logits_processors", [], ["module.Class"]),
        ("vllm_xargs", {}, {"a": 1}),
        ("kv_transfer_params", {}, {"do_remote_decode": True}),
        ("thinking_token_budget", None, 5),
        ("include_reasoning", True, False),
        ("guided_whitespace_pattern", None, "[ ]"),
        ("return_tokens_as_token_ids", False, True),
        ("detokenize", True, False),
        ("prompt_embeds", None, "x"),
    ],
)
def test_what_would_change_an_answer_and_is_not_here_is_refused_by_its_name(
    name: str, harmless: Any, meant: Any
) -> None:
    for read, least in ((read_chat, {"messages": HELLO}), (read_completion, {"prompt": "x"})):
        assert read({**least, name: harmless}, 1000).unknown_fields == ()
        with pytest.raises(ApiError) as raised:
            read({**least, name: meant}, 1000)
        assert (raised.value.status, raised.value.param) == (400, name)


def test_a_byte_order_mark_before_the_body_is_passed_over() -> None:
    assert parse_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_methods_encodings_and_slashes_get_the_words_that_clients_go_by() -> None:
    async def story(served: Served) -> None:
        session, body = served.session, json.dumps(completion()).encode()
        for method in ("GET", "OPTIONS", "PUT"):
            async with session.request(method, "/v1/completions") as response:
                assert (response.status, response.headers["Allow"]) == (405, "POST")
        async with session.head("/v1/models") as response:
            assert response.status == 200
        for encoding in ("br", "zstd"):
            async with session.post("/v1/completions", data=b"xx", headers={"Content-Encoding": encoding}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (415, "unsupported_encoding")
        async with session.post("/v1/completions", data=body, compress="gzip") as response:
            assert response.status == 200
        async with session.post("/v1/completions?api-version=1", data=body, chunked=True) as response:
            assert response.status == 200

    tell_alone(story)
