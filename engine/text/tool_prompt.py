"""A chat with tools → what a chat template takes: the tools described in the system message, where it takes none.

Mistral's insist on ids of nine characters. It must not know HTTP.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.text.tool_format import HERMES

Message = Mapping[str, Any]
SHORT_ID_CHARS = 9

_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_BEHIND = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)


def described(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Sequence[Message]:
    """`messages` in plain roles for a template that knows no tools: calls and their results as text, Hermes' way."""
    if tools or any(message.get("role") == "tool" or "tool_calls" in message for message in messages):
        messages = _in_plain_roles(messages)
    if not tools:
        return messages
    system = _description(tools)
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{system}"}, *messages[1:]]
    return [{"role": "system", "content": system}, *messages]


def described_by_the_user(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Sequence[Message]:
    """The same for a template that takes no system message: the description stands before what the user says first."""
    plain = list(_in_plain_roles(messages))
    for index, message in enumerate(plain):
        if message["role"] == "user":
            plain[index] = {**message, "content": f"{_description(tools)}\n\n{message['content']}"}
            break
    return plain


def with_short_ids(messages: Iterable[Message]) -> list[Message]:
    """Every id of a call as nine letters and digits, equal ones equal."""
    short: list[Message] = []
    for message in messages:
        changed = dict(message)
        if "tool_call_id" in changed:
            changed["tool_call_id"] = _short(changed["tool_call_id"])
        if "tool_calls" in changed:
            changed["tool_calls"] = [{**call, "id": _short(call["id"])} for call in changed["tool_calls"]]
        short.append(changed)
    return short


def _description(tools: Sequence[Mapping[str, Any]]) -> str:
    return _BEFORE + "\n".join([json.dumps(tool, ensure_ascii=False) for tool in tools]) + _BEHIND


def _in_plain_roles(messages: Sequence[Message]) -> list[Message]:
    """Results as what the user says, those of several calls in one message: many templates want turns to alternate."""
    plain: list[Message] = []
    follows_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result:
            result = f"<tool_response>\n{message['content']}\n</tool_response>"
            text = f"{plain.pop()['content']}\n{result}" if follows_result else result
            plain.append({"role": "user", "content": text})
        else:
            texts = [message["content"]] if message["content"] else []
            plain.append({"role": message["role"], "content": "\n".join([*texts, *_calls(message)])})
        follows_result = is_result
    return plain


def _calls(message: Message) -> list[str]:
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return [
        f"{HERMES.opening}{json.dumps(function['name'], ensure_ascii=False)}"
        f"{HERMES.between}{json.dumps(function['arguments'], ensure_ascii=False)}{HERMES.closing}"
        for function in functions
    ]


def _short(call_id: str) -> str:
    if len(call_id) == SHORT_ID_CHARS and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.blake2b(call_id.encode(), digest_size=5).hexdigest()[:SHORT_ID_CHARS]
