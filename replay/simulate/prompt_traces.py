"""Traces that hold the words themselves: OpenAI batches, ShareGPT's conversations, plain prompts.

OpenAI batch   {"custom_id", "body": {"messages" or "prompt", "max_tokens"}} a line; `timestamp` in milliseconds
ShareGPT       [{"conversations": [{"from": "human", "value"}, {"from": "gpt", "value"}, …]}, …], or one a line: the
               first question, and an answer as long as the first one
prompts        {"prompt" or "messages", and perhaps "output_tokens" or "max_tokens", "timestamp"} a line

A prompt of token ids is as long as it is; text counts as one token for four bytes. An output of unknown length is of
DEFAULT_OUTPUT_TOKENS.

Sources: OpenAI's Batch API; the ShareGPT_Vicuna_unfiltered data set.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from replay.simulate.arrivals import Arrival
from replay.simulate.trace_rows import MAX_TOKENS, Row

DEFAULT_OUTPUT_TOKENS = 128
_BYTES_PER_TOKEN = 4
_MAX_DEPTH = 16
_NS_PER_MS = 1_000_000
_OUTPUT_NAMES = ("output_length", "output_tokens", "max_completion_tokens", "max_tokens")
_QUESTION, _ANSWER = ("human", "user"), ("gpt", "assistant", "chatgpt", "bing", "bard")


def read_batch(rows: Iterable[Row]) -> Iterator[Arrival]:
    """Raises UnusableTrace."""
    for row in rows:
        body = row.values.get("body")
        if not isinstance(body, dict):
            row.fail("body", "must be a JSON object")
        asked = Row(row.path, row.place, body)
        outside = {name: value for name, value in row.values.items() if name in ("timestamp", *_OUTPUT_NAMES)}
        told = Row(row.path, row.place, {**body, **outside})
        yield _arrival(told, _body(asked), row.text("custom_id"))


def read_prompts(rows: Iterable[Row]) -> Iterator[Arrival]:
    """Raises UnusableTrace."""
    for row in rows:
        yield _arrival(row, _body(row), row.text("custom_id"))


def read_sharegpt(rows: Iterable[Row], notes: list[str]) -> Iterator[Arrival]:
    """Conversations without a question are left out, and counted in `notes`. Raises UnusableTrace."""
    num_empty = 0
    for row in rows:
        turns = row.values.get("conversations")
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            row.fail("conversations", "must be a list of turns")
        question, answer = _first_of(row, turns, _QUESTION), _first_of(row, turns, _ANSWER)
        if not question:
            num_empty += 1
            continue
        output = _estimate(answer) if answer else DEFAULT_OUTPUT_TOKENS
        name = row.values.get("id")
        yield Arrival(
            -1, _estimate(question), output, name=name if isinstance(name, str) else "", body={"prompt": question}
        )
    if num_empty:
        notes.append(f"{num_empty} conversations hold no question and are left out")


def _arrival(row: Row, body: dict[str, Any], name: str) -> Arrival:
    num_prompt_tokens = _num_tokens(body)
    return Arrival(
        row.at_ns("timestamp", _NS_PER_MS) if row.has("timestamp") else -1,
        num_prompt_tokens,
        row.tokens(*_OUTPUT_NAMES, default=DEFAULT_OUTPUT_TOKENS),
        max_output_tokens=row.tokens("max_completion_tokens", "max_tokens", default=0),
        name=name,
        body=body,
    )


def _body(row: Row) -> dict[str, Any]:
    """The prompt alone, as an API takes it: text, token ids, or a chat's messages."""
    messages, prompt = row.values.get("messages"), row.values.get("prompt")
    if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        if _is_deeper(messages, _MAX_DEPTH):
            row.fail("messages", f"must not be nested more than {_MAX_DEPTH} deep")
        return {"messages": messages}
    if isinstance(prompt, str) and prompt:
        return {"prompt": prompt}
    if isinstance(prompt, list) and 0 < len(prompt) <= MAX_TOKENS and all(type(item) is int for item in prompt):
        return {"prompt": prompt}
    return row.fail("messages" if "messages" in row.values else "prompt", "must be text, token ids or messages")


def _num_tokens(body: dict[str, Any]) -> int:
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    return _estimate(prompt if isinstance(prompt, str) else "".join(_texts(body["messages"])))


def _texts(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Of messages, whose contents may be lists of parts."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects lie in one another more often than that."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, dict | list) for item in level)


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _first_of(row: Row, turns: list[dict[str, Any]], speakers: tuple[str, ...]) -> str:
    for turn in turns:
        if turn.get("from", turn.get("role")) in speakers:
            text = turn.get("value", turn.get("content"))
            if isinstance(text, str):
                return text
            row.fail("conversations", "must hold turns with text")
    return ""
