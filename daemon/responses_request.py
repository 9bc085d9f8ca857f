"""A body of /v1/responses → the chat that it is, and what of it the answer says again.

Nothing is stored here, so whatever would need an earlier answer is refused: `previous_response_id`, `conversation`,
`store: true`, `background`. Tools are functions; what an item may be is a message, a call, or a call's result. It must
not know how a chat is read beyond the names of its fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daemon import fields
from daemon.errors import ApiError, bad_request
from daemon.fields import Body, kind_of

Json = dict[str, Any]
MAX_TEXT_CHARS = 1 << 24

# field → values that change nothing (null never does)
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "store": (False,),
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "include": ([],),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "max_tool_calls": (),
    "n": (1,),
}
_REMEDIES = {
    "store": "answers are not stored here: leave it out, or give false",
    "previous_response_id": "answers are not stored here: send the whole conversation as input",
    "conversation": "conversations are not stored here: send the whole conversation as input",
}
_OWN = {
    "input",
    "instructions",
    "max_output_tokens",
    "text",
    "tools",
    "tool_choice",
    "metadata",
    "reasoning",
    *_HARMLESS,
}
_PARAMS = {"messages": "input", "max_completion_tokens": "max_output_tokens", "response_format": "text"}
_KINDS = ("input_text", "output_text", "text")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a response says again of its request; `tools` as they were given."""

    instructions: str | None
    tools: tuple[Json, ...]
    tool_choice: Any
    is_parallel: bool
    max_output_tokens: int | None
    temperature: float
    top_p: float
    text: Json
    metadata: Json


def chat_of(body: Body) -> tuple[Json, Asked]:
    """A body of /v1/chat/completions that asks the same. Raises ApiError 400 that names the field."""
    for name, harmless in _HARMLESS.items():
        value = body.get(name)
        if value is not None and not any(type(value) is type(each) and value == each for each in harmless):
            raise bad_request(f"{name} is not supported: {_REMEDIES.get(name, 'leave it out')}", name)
    instructions = fields.text(body, "instructions", "", MAX_TEXT_CHARS)
    tools, choice = _tools(body.get("tools")), body.get("tool_choice")
    text = _object(body, "text")
    chat: Json = {name: value for name, value in body.items() if name not in _OWN}
    chat["messages"] = [*_instructions(instructions), *_messages(body.get("input"))]
    chat["max_completion_tokens"] = body.get("max_output_tokens")
    chat["tools"], chat["tool_choice"] = [_chat_tool(tool) for tool in tools], _chat_choice(choice)
    chat["response_format"] = _format(text.get("format"))
    asked = Asked(
        instructions or None,
        tools,
        "auto" if choice is None else choice,
        fields.boolean(body, "parallel_tool_calls", True),
        body.get("max_output_tokens"),
        fields.number(body, "temperature", 1.0, 0.0, 2.0),
        fields.number(body, "top_p", 1.0, 0.0, 1.0, above_minimum=True),
        text or {"format": {"type": "text"}},
        _object(body, "metadata"),
    )
    return chat, asked


def renamed(error: ApiError) -> ApiError:
    """An error about the chat, in the words of the body that it was made of."""
    param = _PARAMS.get(error.param or "", error.param)
    return ApiError(error.status, error.message, param=param, code=error.code)


def _instructions(text: str) -> list[Json]:
    return [{"role": "system", "content": text}] if text else []


def _messages(value: Any) -> list[Json]:
    if type(value) is str and value:
        return [{"role": "user", "content": value}]
    if type(value) is not list or not value:
        raise bad_request(f"input must be a text or a list of items, none empty, not {kind_of(value)}", "input")
    messages: list[Json] = []
    for index, item in enumerate(value):
        message = _message(item, f"input[{index}]")
        if "tool_calls" in message and messages and "tool_calls" in messages[-1]:
            messages[-1]["tool_calls"] += message["tool_calls"]  # calls made at once are one message of a chat
        else:
            messages.append(message)
    return messages


def _message(item: Any, place: str) -> Json:
    if type(item) is not dict:
        raise bad_request(f"{place} must be an object, not {kind_of(item)}", "input")
    match item.get("type", "message"):
        case "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            return {"role": role, "content": _content(item.get("content"), place)}
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output":
            content = _content(item.get("output"), place)
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
    raise bad_request(f"{place}.type must be message, function_call or function_call_output", "input")


def _content(value: Any, place: str) -> Any:
    if type(value) is not list:
        return value
    if any(type(part) is not dict or part.get("type") not in _KINDS for part in value):
        raise bad_request(f"{place} holds a part that is no text: other parts are not supported", "input")
    return [{"type": "text", "text": part.get("text")} for part in value]


def _tools(value: Any) -> tuple[Json, ...]:
    if value is None:
        return ()
    if type(value) is not list or any(type(tool) is not dict or tool.get("type") != "function" for tool in value):
        raise bad_request('tools must be a list of {"type": "function", "name": …}: no other tools are here', "tools")
    return tuple(value)


def _chat_tool(tool: Json) -> Json:
    return {"type": "function", "function": {key: tool.get(key) for key in ("name", "description", "parameters")}}


def _chat_choice(choice: Any) -> Any:
    if type(choice) is not dict:
        return choice
    return {"type": choice.get("type"), "function": {"name": choice.get("name")}}


def _format(value: Any) -> Any:
    if type(value) is not dict or value.get("type") != "json_schema":
        return value
    return {"type": "json_schema", "json_schema": {"name": value.get("name"), "schema": value.get("schema")}}


def _object(body: Body, name: str) -> Json:
    value: Mapping[str, Any] | None = body.get(name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise bad_request(f"{name} must be an object, not {kind_of(value)}", name)
    return dict(value)
