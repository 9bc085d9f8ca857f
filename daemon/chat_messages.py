"""The messages of a chat: checked, and with text parts joined, as a chat template takes them.

Must not know the template: which roles it allows is its own word, told as a 400 when it raises.
"""

from typing import Any

from daemon.errors import bad_request
from daemon.fields import Body, kind_of

MAX_MESSAGES = 4096
MAX_ROLE_CHARS = 64


def read_messages(body: Body) -> tuple[dict[str, str], ...]:
    """Each message as {"role", "content"}. Raises ApiError 400 that names the message at fault."""
    value = body.get("messages")
    if type(value) is not list:
        raise bad_request(f"messages must be a list of messages, not {kind_of(value)}", "messages")
    if not 0 < len(value) <= MAX_MESSAGES:
        raise bad_request(f"messages has {len(value)} entries: give from 1 to {MAX_MESSAGES}", "messages")
    return tuple([_message(item, f"messages[{index}]") for index, item in enumerate(value)])


def _message(item: Any, place: str) -> dict[str, str]:
    if type(item) is not dict:
        raise bad_request(f"{place} must be an object, not {kind_of(item)}", "messages")
    role = item.get("role")
    if type(role) is not str or not 0 < len(role) <= MAX_ROLE_CHARS:
        raise bad_request(f"{place} needs a role such as system, user or assistant", "messages")
    if item.get("tool_calls"):
        raise bad_request(f"{place} holds tool calls, which are not supported", "messages")
    return {"role": role, "content": _content(item.get("content"), place)}


def _content(value: Any, place: str) -> str:
    if type(value) is str:
        return value
    if type(value) is not list:
        raise bad_request(f"{place} needs a content: a text, or a list of text parts, not {kind_of(value)}", "messages")
    return "\n".join([_part(part, f"{place}.content[{index}]") for index, part in enumerate(value)])


def _part(part: Any, place: str) -> str:
    if type(part) is not dict or part.get("type") != "text" or type(part.get("text")) is not str:
        raise bad_request(f'{place} must be {{"type": "text", "text": …}}: other parts are not supported', "messages")
    return str(part["text"])
