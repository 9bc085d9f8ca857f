"""The messages of a chat: checked, and with text parts joined, as a chat template takes them.

Calls of functions stand in an assistant's message, their results in messages of the role `tool`, which name the call.
Must not know the template: which roles it allows is its own word, told as a 400 when it raises.
"""

import json
from collections.abc import Mapping
from typing import Any

from daemon.errors import bad_request
from daemon.fields import Body, kind_of

MAX_MESSAGES = 4096
MAX_ROLE_CHARS = 64
MAX_CALLS, MAX_CALL_ID_CHARS = 128, 512

Message = dict[str, Any]
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}  # type → its field


def read_messages(body: Body) -> tuple[Message, ...]:
    """Each message as {"role", "content"}, and calls with their arguments as values.

    Raises ApiError 400 that names the message at fault.
    """
    value = body.get("messages")
    if type(value) is not list:
        raise bad_request(f"messages must be a list of messages, not {kind_of(value)}", "messages")
    if not 0 < len(value) <= MAX_MESSAGES:
        raise bad_request(f"messages has {len(value)} entries: give from 1 to {MAX_MESSAGES}", "messages")
    names: dict[str, str] = {}  # id of a call → function
    return tuple([_message(item, f"messages[{index}]", names) for index, item in enumerate(value)])


def _message(item: Any, place: str, names: dict[str, str]) -> Message:
    if type(item) is not dict:
        raise bad_request(f"{place} must be an object, not {kind_of(item)}", "messages")
    role = item.get("role")
    if type(role) is not str or not 0 < len(role) <= MAX_ROLE_CHARS:
        raise bad_request(f"{place} needs a role such as system, user or assistant", "messages")
    if role == "tool":
        return {"role": role, "content": _content(item.get("content"), place), **_answered(item, place, names)}
    if not item.get("tool_calls"):
        is_own = role == "assistant"  # an empty answer comes back as null
        return {"role": role, "content": _content(item.get("content"), place, may_be_null=is_own)}
    calls = _calls(item["tool_calls"], f"{place}.tool_calls")
    names.update({call["id"]: call["function"]["name"] for call in calls})
    content = "" if item.get("content") is None else _content(item["content"], place)
    return {"role": role, "content": content, "tool_calls": calls}


def _answered(item: Mapping[str, Any], place: str, names: dict[str, str]) -> Message:
    """Which call a result is of; templates ask for the function's name, clients leave it out."""
    call_id = item.get("tool_call_id")
    if type(call_id) is not str or len(call_id) > MAX_CALL_ID_CHARS:
        raise bad_request(f"{place} needs the tool_call_id of the call that it answers", "messages")
    name = item.get("name")
    return {"tool_call_id": call_id, "name": name if type(name) is str else names.get(call_id, "")}


def _calls(value: Any, place: str) -> list[Message]:
    if type(value) is not list or len(value) > MAX_CALLS:
        raise bad_request(f"{place} must be a list of at most {MAX_CALLS} calls", "messages")
    return [_call(item, f"{place}[{index}]") for index, item in enumerate(value)]


def _call(item: Any, place: str) -> Message:
    function = item.get("function") if type(item) is dict else None
    if type(function) is not dict or type(function.get("name")) is not str:
        raise bad_request(f'{place} must be {{"id": …, "type": "function", "function": {{"name": …}}}}', "messages")
    call_id, text = item.get("id"), function.get("arguments", "{}")
    if type(call_id) is not str or len(call_id) > MAX_CALL_ID_CHARS:
        raise bad_request(f"{place}.id must be a text of at most {MAX_CALL_ID_CHARS} characters", "messages")
    try:
        arguments = json.loads(text or "{}") if type(text) is str else text
    except (ValueError, RecursionError) as error:
        raise bad_request(f"{place}.function.arguments is not valid JSON: {error}", "messages") from error
    if type(arguments) is not dict:
        raise bad_request(f"{place}.function.arguments must be a JSON object, as a text", "messages")
    return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _content(value: Any, place: str, *, may_be_null: bool = False) -> str:
    if type(value) is str:
        return value
    if value is None and may_be_null:
        return ""
    if type(value) is not list:
        raise bad_request(f"{place} needs a content: a text, or a list of text parts, not {kind_of(value)}", "messages")
    return "\n".join([_part(part, f"{place}.content[{index}]") for index, part in enumerate(value)])


def _part(part: Any, place: str) -> str:
    """Of a chat, or of what /v1/responses calls by other names; clients send the one to the other."""
    if type(part) is str:
        return part
    text = part.get(_TEXT_PARTS.get(str(part.get("type")))) if type(part) is dict else None
    if type(text) is not str:
        raise bad_request(f'{place} must be {{"type": "text", "text": …}}: other parts are not supported', "messages")
    return text
