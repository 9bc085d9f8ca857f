"""One `data:` line of a stream → what it says, for chat and plain completions of any server. It keeps no state."""

import json
from typing import Any, NamedTuple


class MalformedEvent(ValueError):
    """The line is no event of this API."""

    def __init__(self, data: bytes) -> None:
        super().__init__(f"an event that is none of this API: {data[:100].decode('utf-8', 'replace')}")


class Usage(NamedTuple):
    num_prompt_tokens: int
    num_output_tokens: int


class Event(NamedTuple):
    """
    is_output   it brings a token, possibly one without text (a special one): not what opens or closes an answer
    token_ids   where the server gives them
    error       the server's message; "" if this is no error
    """

    is_output: bool = False
    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    error: str = ""


def parse_event(data: bytes) -> Event:
    """Raises MalformedEvent."""
    try:
        body = json.loads(data)
        if body.get("error"):
            return Event(error=_message_of(body["error"]))
        choice: dict[str, Any] = next(iter(body.get("choices") or ()), {})
        return _event_of(choice, _usage_of(body.get("usage")))
    except (ValueError, TypeError, AttributeError, KeyError):
        raise MalformedEvent(data) from None


def _event_of(choice: dict[str, Any], usage: Usage | None) -> Event:
    delta = choice.get("delta") or {}
    pieces = (choice.get("text"), delta.get("content"), delta.get("reasoning_content"), delta.get("reasoning"))
    piece = next((piece for piece in pieces if piece is not None), None)
    token_ids = tuple(choice.get("token_ids") or choice.get("tokens") or ())
    finish_reason = choice.get("finish_reason")
    is_empty_token = piece == "" and not finish_reason and "role" not in delta
    return Event(bool(piece or token_ids or is_empty_token), piece or "", token_ids, finish_reason, usage)


def _usage_of(usage: dict[str, Any] | None) -> Usage | None:
    return Usage(int(usage["prompt_tokens"]), int(usage["completion_tokens"])) if usage else None


def _message_of(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)
