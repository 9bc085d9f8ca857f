"""A JSON body of the OpenAI API → a `Question`: what is to be generated, with every field checked.

Nothing is tokenized here and nothing is sent: what this file raises is answered before the first byte of a response.
Fields that would change the answer but are not supported are refused (`refused_fields.py`), unknown ones are let
through and named, so that they can be logged. It must not know HTTP, engine or model, only the vocabulary's size.
"""

from dataclasses import replace
from typing import Any

from daemon import chat_messages, fields, responses_request
from daemon.api_keys import MAX_PRIORITY
from daemon.chat_rendering import read_rendering
from daemon.choice_plan import read_counts
from daemon.errors import ApiError, bad_request
from daemon.fields import Body
from daemon.prompt_logprobs import read_prompt_ask
from daemon.question import Prompt, Question
from daemon.refused_fields import REFUSABLE_FIELDS, refuse_unsupported
from daemon.shown_text import read_shown_text
from daemon.structure import read_structure
from daemon.tools import read_tools
from daemon.urgency import Urgency
from engine.core.limits import MAX_REQUEST_ID_CHARS
from engine.core.sampling_params import SamplingParams

DEFAULT_COMPLETION_TOKENS = 16
MAX_OUTPUT_TOKENS = 2**31 - 1
MAX_STOP_STRINGS, MAX_STOP_STRING_CHARS = 16, 1024
MAX_STOP_TOKENS = 1024
MAX_SUFFIX_CHARS = 1 << 20
MAX_LOGIT_BIASES = 1024
MAX_LOGPROBS = 20
MAX_PROMPTS = 128
MAX_TARGET_MS = 86_400_000  # a day


def read_completion(body: Body, vocab_size: int) -> Question:
    """The question in a body of /v1/completions. Raises ApiError 400 that names the field."""
    refuse_unsupported(body, is_chat=False)
    num_logprobs = fields.integer(body, "logprobs", -1, 0, MAX_LOGPROBS)
    max_output_tokens = _max_output_tokens(body, is_chat=False)
    prompts = read_prompts(body, vocab_size)
    return _question(body, vocab_size, num_logprobs, max_output_tokens, prompts=prompts)


def read_chat(body: Body, vocab_size: int) -> Question:
    """The question in a body of /v1/chat/completions. Raises ApiError 400 that names the field."""
    refuse_unsupported(body, is_chat=True)
    wants_logprobs = fields.boolean(body, "logprobs")
    num_top = fields.integer(body, "top_logprobs", 0, 0, MAX_LOGPROBS)
    if num_top and not wants_logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    num_logprobs = num_top if wants_logprobs else -1
    max_output_tokens = _max_output_tokens(body, is_chat=True)
    messages = chat_messages.read_messages(body)
    question = _question(body, vocab_size, num_logprobs, max_output_tokens, messages=messages)
    tools = read_tools(body)
    if tools is not None and question.structure is not None:
        message = f"{question.structure.place} cannot be had with tools that may be called: leave one out, or give "
        raise bad_request(message + "tool_choice none", question.structure.field)
    return replace(question, tools=tools, rendering=read_rendering(body, messages))


def read_response(body: Body, vocab_size: int) -> Question:
    """The question in a body of /v1/responses, a chat's. Raises ApiError 400 that names the field."""
    chat, asked = responses_request.chat_of(body)
    try:
        return replace(read_chat(chat, vocab_size), asked=asked)
    except ApiError as error:
        raise responses_request.renamed(error) from error


def read_prompts(body: Body, vocab_size: int) -> tuple[Prompt, ...]:
    """One prompt per choice: a text, a token-id list, or a list of either."""
    value = body.get("prompt")
    if type(value) is str:
        return (value,)
    if type(value) is not list:
        raise bad_request(
            f"prompt must be a text, a list of token ids, or a list of these, not {fields.kind_of(value)}", "prompt"
        )
    if not value:
        raise bad_request("prompt is empty: give at least one token", "prompt")
    if type(value[0]) not in (str, list):
        return (fields.token_ids(value, "prompt", vocab_size),)
    if len(value) > MAX_PROMPTS:
        raise bad_request(f"prompt holds {len(value)} prompts, at most {MAX_PROMPTS} are taken in one call", "prompt")
    return tuple([_one_prompt(item, vocab_size) for item in value])


def read_request_id(value: str) -> str:
    """The id by which the client knows the request; raises ApiError 400 unless it can stand in a header."""
    is_plain = all("!" <= char <= "~" for char in value)
    if not is_plain or len(value) > MAX_REQUEST_ID_CHARS - 4:  # "-127" is added where a call holds several prompts
        raise bad_request(
            f"request_id may have {MAX_REQUEST_ID_CHARS - 4} characters at most, printable ASCII without blanks",
            "request_id",
        )
    return value


def unknown_model(asked: str, served: tuple[str, ...]) -> ApiError:
    return ApiError(
        404,
        f"the model {asked[:100]!r} is not served here: ask for {' or '.join(served)}",
        param="model",
        code="model_not_found",
    )


def _question(
    body: Body,
    vocab_size: int,
    num_logprobs: int,
    max_output_tokens: int | None,
    *,
    prompts: tuple[Prompt, ...] = (),
    messages: tuple[dict[str, Any], ...] = (),
) -> Question:
    stream = fields.boolean(body, "stream")
    min_tokens = fields.integer(body, "min_tokens", 0, 0, MAX_OUTPUT_TOKENS)
    if max_output_tokens is not None and min_tokens > max_output_tokens:
        raise bad_request(f"min_tokens is {min_tokens}, more than max_tokens ({max_output_tokens})", "min_tokens")
    model = fields.text(body, "model", "", 1024)
    request_id = fields.text(body, "request_id", "", MAX_REQUEST_ID_CHARS)
    seed = body.get("seed")
    fields.text(body, "user", "", 1024)
    return Question(
        is_chat=bool(messages),
        model=model or None,
        prompts=prompts,
        messages=messages,
        max_output_tokens=max_output_tokens,
        sampling=_sampling(body, num_logprobs, min_tokens),
        seed=None if seed is None else fields.integer(body, "seed", 0, fields.INT64_MIN, fields.INT64_MAX),
        stop_strings=fields.texts(body, "stop", MAX_STOP_STRINGS, MAX_STOP_STRING_CHARS),
        stop_token_ids=_stop_token_ids(body, vocab_size),
        logit_bias=fields.logit_bias(body, vocab_size, MAX_LOGIT_BIASES),
        stream=stream,
        include_usage=_stream_option(body, "include_usage", stream),
        continuous_usage=_stream_option(body, "continuous_usage_stats", stream),
        return_token_ids=fields.boolean(body, "return_token_ids"),
        urgency=Urgency(
            None if body.get("priority") is None else fields.integer(body, "priority", 0, 0, MAX_PRIORITY),
            fields.integer(body, "ttft_target_ms", 0, 0, MAX_TARGET_MS),
            fields.integer(body, "itl_target_ms", 0, 0, MAX_TARGET_MS),
            fields.integer(body, "queue_timeout_ms", 0, 0, MAX_TARGET_MS),
        ),
        request_id=read_request_id(request_id),
        unknown_fields=tuple([name for name in body if name not in KNOWN_FIELDS]),
        structure=read_structure(body),
        echo=not messages and fields.boolean(body, "echo"),
        suffix="" if messages else fields.text(body, "suffix", "", MAX_SUFFIX_CHARS),
        prompt_ask=read_prompt_ask(body, num_logprobs, is_chat=bool(messages)),
        adds_special=fields.boolean(body, "add_special_tokens", True),
        max_prompt_tokens=fields.integer(body, "truncate_prompt_tokens", 0, -1, MAX_OUTPUT_TOKENS),
        shown=read_shown_text(body),
        counts=read_counts(body, max(1, len(prompts)), is_chat=bool(messages), stream=stream),
    )


def _sampling(body: Body, num_logprobs: int, min_tokens: int) -> SamplingParams:
    return SamplingParams(
        temperature=fields.number(body, "temperature", 1.0, 0.0, 2.0),
        top_k=max(0, fields.integer(body, "top_k", 0, -1, MAX_OUTPUT_TOKENS)),
        top_p=fields.number(body, "top_p", 1.0, 0.0, 1.0, above_minimum=True),
        min_p=fields.number(body, "min_p", 0.0, 0.0, 1.0),
        repetition_penalty=fields.number(body, "repetition_penalty", 1.0, 0.0, 100.0, above_minimum=True),
        presence_penalty=fields.number(body, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=fields.number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        num_logprobs=num_logprobs,
        min_tokens=min_tokens,
        ignore_eos=fields.boolean(body, "ignore_eos"),
    )


def _max_output_tokens(body: Body, is_chat: bool) -> int | None:
    names = ("max_completion_tokens", "max_tokens") if is_chat else ("max_tokens",)
    least = 1 if is_chat else 0  # a completion may ask about its prompt alone
    given = [fields.integer(body, name, 0, least, MAX_OUTPUT_TOKENS) for name in names if body.get(name) is not None]
    return given[0] if given else None  # the newer name wins, the older one is checked all the same


def _stream_option(body: Body, name: str, stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if type(options) is not dict:
        raise bad_request(f"stream_options must be an object, not {fields.kind_of(options)}", "stream_options")
    if not stream:
        raise bad_request("stream_options may only be given when stream is true", "stream_options")
    try:
        return fields.boolean(options, name)
    except ApiError as error:
        raise bad_request(f"stream_options: {error.message}", "stream_options") from error


def _stop_token_ids(body: Body, vocab_size: int) -> tuple[int, ...]:
    value = body.get("stop_token_ids")
    if value is None:
        return ()
    ids = fields.token_ids(value, "stop_token_ids", vocab_size)
    if len(ids) > MAX_STOP_TOKENS:
        raise bad_request(
            f"stop_token_ids has {len(ids)} entries, at most {MAX_STOP_TOKENS} are taken", "stop_token_ids"
        )
    return ids


def _one_prompt(item: Any, vocab_size: int) -> Prompt:
    if type(item) is str:
        return item
    ids = fields.token_ids(item, "prompt", vocab_size)
    if not ids:
        raise bad_request("prompt holds an empty list: give at least one token", "prompt")
    return ids


KNOWN_FIELDS = REFUSABLE_FIELDS | {
    *(
        "model",
        "prompt",
        "messages",
        "stream",
        "stream_options",
        "user",
        "priority",
        "request_id",
        "return_token_ids",
        "echo",
        "prompt_logprobs",
    ),
    *("ttft_target_ms", "itl_target_ms", "queue_timeout_ms"),
    *("max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stop", "stop_token_ids", "n", "seed"),
    *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logit_bias", "logprobs", "top_logprobs", "response_format", "structured_outputs"),
    *("parallel_tool_calls", "reasoning_effort", "add_special_tokens", "truncate_prompt_tokens"),
    *("skip_special_tokens", "include_stop_str_in_output"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
}
