"""A chat whose last message is not closed: the answer goes on within it.

Templates close every message, so a mark is put where its content ends, and what stands behind that is cut off, as
Hugging Face's apply_chat_template does. It must not know templates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_MARK = "THE_MESSAGE_GOES_ON_HERE "  # with a blank: a template that trims contents is seen by its loss


def with_mark(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """`messages`, of which the last has a text as content, with the mark behind it."""
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']}{_MARK}"}]


def cut_behind_mark(text: str) -> str:
    """What was made of them, up to the mark; without blanks before it where the template trims contents."""
    head, mark, tail = text.rpartition(_MARK.rstrip())
    if not mark:
        return text
    return head if tail.startswith(" ") else head.rstrip()
