"""The fields of a question as JSON schemas, with their bounds: what /openapi.json tells of the two endpoints.

`openai_api.py` reads the same fields; the tests hold the two to each other, bound by bound.
"""

from typing import Any

from daemon import openai_api as api
from daemon.api_keys import MAX_PRIORITY
from daemon.chat_messages import MAX_CALL_ID_CHARS, MAX_CALLS, MAX_MESSAGES, MAX_ROLE_CHARS
from daemon.chat_rendering import MAX_NAME_CHARS, MAX_VARIABLES
from daemon.choice_plan import MAX_CHOICES
from daemon.fields import INT64_MAX, INT64_MIN
from daemon.prompt_logprobs import MAX_PROMPT_LOGPROBS
from daemon.structure import MAX_CHOICES as MAX_TEXTS
from engine.core.limits import MAX_REQUEST_ID_CHARS
from engine.text.grammar import MAX_GRAMMAR_CHARS

Json = dict[str, Any]


def _integer(minimum: int, maximum: int, default: int | None = None) -> Json:
    schema: Json = {"type": ["integer", "null"], "minimum": minimum, "maximum": maximum}
    return schema if default is None else {**schema, "default": default}


def _number(minimum: float, maximum: float, default: float, *, above_minimum: bool = False) -> Json:
    lowest = {"exclusiveMinimum" if above_minimum else "minimum": minimum}
    return {"type": ["number", "null"], **lowest, "maximum": maximum, "default": default}


def _text(max_chars: int, min_chars: int = 0) -> Json:
    return {"type": ["string", "null"], "minLength": min_chars, "maxLength": max_chars}


def _list(items: Json, min_items: int, max_items: int) -> Json:
    return {"type": ["array", "null"], "items": items, "minItems": min_items, "maxItems": max_items}


_FLAG: Json = {"type": ["boolean", "null"], "default": False}
_TOKEN: Json = {"type": "integer", "minimum": 0}
_TOKENS: Json = {"type": "array", "items": _TOKEN, "minItems": 1}
_STOP: Json = {"type": "string", "minLength": 1, "maxLength": api.MAX_STOP_STRING_CHARS}
_FREE: Json = {"type": ["object", "null"]}
_SOURCE = _text(MAX_GRAMMAR_CHARS, 1)
_PART: Json = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_MESSAGE: Json = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "minLength": 1, "maxLength": MAX_ROLE_CHARS},
        "content": {"anyOf": [{"type": "null"}, {"type": "string"}, {"type": "array", "items": _PART}]},
        "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}, "maxItems": MAX_CALLS},
        "tool_call_id": {"type": ["string", "null"], "maxLength": MAX_CALL_ID_CHARS},
    },
    "required": ["role"],
}

COMMON_FIELDS: dict[str, Json] = {
    "model": _text(1024),
    "max_tokens": _integer(1, api.MAX_OUTPUT_TOKENS),
    "min_tokens": _integer(0, api.MAX_OUTPUT_TOKENS, 0),
    "n": _integer(1, MAX_CHOICES, 1),
    "seed": _integer(INT64_MIN, INT64_MAX),
    "stream": _FLAG,
    "stream_options": {
        "type": ["object", "null"],
        "properties": {"include_usage": _FLAG, "continuous_usage_stats": _FLAG},
    },
    "stop": {"anyOf": [{"type": "null"}, _STOP, _list(_STOP, 0, api.MAX_STOP_STRINGS)]},
    "stop_token_ids": _list(_TOKEN, 0, api.MAX_STOP_TOKENS),
    "ignore_eos": _FLAG,
    "temperature": _number(0.0, 2.0, 1.0),
    "top_p": _number(0.0, 1.0, 1.0, above_minimum=True),
    "top_k": _integer(-1, api.MAX_OUTPUT_TOKENS, 0),
    "min_p": _number(0.0, 1.0, 0.0),
    "presence_penalty": _number(-2.0, 2.0, 0.0),
    "frequency_penalty": _number(-2.0, 2.0, 0.0),
    "repetition_penalty": _number(0.0, 100.0, 1.0, above_minimum=True),
    "logit_bias": {
        "type": ["object", "null"],
        "propertyNames": {"pattern": "^[0-9]{1,19}$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        "maxProperties": api.MAX_LOGIT_BIASES,
    },
    "response_format": {
        "type": ["object", "null"],
        "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}, "json_schema": _FREE},
        "required": ["type"],
    },
    "structured_outputs": _FREE,
    "guided_json": {"type": ["object", "string", "boolean", "null"]},
    "guided_regex": _SOURCE,
    "guided_grammar": _SOURCE,
    "guided_choice": _list({"type": "string", "minLength": 1}, 1, MAX_TEXTS),
    "priority": _integer(0, MAX_PRIORITY),
    "ttft_target_ms": _integer(0, api.MAX_TARGET_MS, 0),
    "itl_target_ms": _integer(0, api.MAX_TARGET_MS, 0),
    "queue_timeout_ms": _integer(0, api.MAX_TARGET_MS, 0),
    "request_id": _text(MAX_REQUEST_ID_CHARS - 4),
    "prompt_logprobs": _integer(0, MAX_PROMPT_LOGPROBS),
    "return_token_ids": _FLAG,
    "skip_special_tokens": {**_FLAG, "default": True},
    "include_stop_str_in_output": _FLAG,
    "add_special_tokens": {"type": ["boolean", "null"]},
    "truncate_prompt_tokens": _integer(-1, api.MAX_OUTPUT_TOKENS),
    "user": _text(1024),
}
COMPLETION_FIELDS: dict[str, Json] = {
    "prompt": {
        "anyOf": [
            {"type": "string", "minLength": 1},
            _TOKENS,
            {"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 1}, _TOKENS]}, "minItems": 1},
        ]
    },
    **COMMON_FIELDS,
    "best_of": _integer(1, MAX_CHOICES),
    "max_tokens": _integer(0, api.MAX_OUTPUT_TOKENS),
    "suffix": _text(api.MAX_SUFFIX_CHARS),
    "echo": _FLAG,
    "logprobs": _integer(0, api.MAX_LOGPROBS),
}
CHAT_FIELDS: dict[str, Json] = {
    "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": MAX_MESSAGES},
    **COMMON_FIELDS,
    "max_completion_tokens": _integer(1, api.MAX_OUTPUT_TOKENS),
    "logprobs": _FLAG,
    "top_logprobs": _integer(0, api.MAX_LOGPROBS, 0),
    "add_generation_prompt": {**_FLAG, "default": True},
    "continue_final_message": _FLAG,
    "chat_template_kwargs": {"type": ["object", "null"], "maxProperties": MAX_VARIABLES},
    "reasoning_effort": _text(MAX_NAME_CHARS),
    "tools": {"type": ["array", "null"], "items": {"type": "object"}},
    "parallel_tool_calls": {**_FLAG, "default": True},
    "tool_choice": {"anyOf": [{"type": "null"}, {"enum": ["none", "auto", "required"]}, {"type": "object"}]},
}
_KINDS = {"enum": ["message", "function_call", "function_call_output"]}
_INPUT: Json = {"type": "object", "properties": {"type": _KINDS}}
_NOT_IN_RESPONSES = ("max_tokens", "n", "prompt_logprobs", "response_format", "stream_options")
RESPONSES_FIELDS: dict[str, Json] = {
    "input": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": _INPUT, "minItems": 1}]},
    "instructions": {"type": ["string", "null"]},
    **{name: schema for name, schema in COMMON_FIELDS.items() if name not in _NOT_IN_RESPONSES},
    "max_output_tokens": _integer(1, api.MAX_OUTPUT_TOKENS),
    "text": {"type": ["object", "null"], "properties": {"format": _FREE}},
    "tools": CHAT_FIELDS["tools"],
    "tool_choice": CHAT_FIELDS["tool_choice"],
    "parallel_tool_calls": CHAT_FIELDS["parallel_tool_calls"],
    "store": {"enum": [False, None]},
    "metadata": _FREE,
}
