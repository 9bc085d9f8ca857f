"""The functions that an answer may call → one grammar: a free text, calls, or calls behind a text.

It holds names and arguments to the tools that were given, so a call can always be read. It must not know requests.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.text.grammar import InvalidGrammar, checked, of_json_schema, with_options
from engine.text.tool_format import ToolFormat
from engine.text.vocabulary import Vocabulary

_ANY = "(?s:.*)"


def of_calls(
    form: ToolFormat,
    functions: Sequence[tuple[str, Any]],
    control_ids: Mapping[str, int],
    *,
    is_required: bool,
    is_parallel: bool,
) -> str:
    """The grammar of an answer that may call, or must.

    functions     (name, schema of its arguments, a JSON schema of an object)
    control_ids   as `control_ids` gives
    is_required   no text, at least one call
    is_parallel   several calls, where the format has them
    Raises InvalidGrammar, which names the function.
    """
    for name, schema in functions:
        try:
            of_json_schema(schema)
        except InvalidGrammar as error:
            raise InvalidGrammar(f"the parameters of {name!r}: {error}") from error
    literal = _Literals(control_ids)
    several = is_parallel and form.separator is not None
    opening = form.begins + form.opening
    call = "function ID?" if form.call_id else "function"
    more = f"({literal(form.closing + (form.separator or '') + form.opening)} {call})*" if several else ""
    calls = f"{call} {more} {literal(form.closing + form.ends)}"
    rules = [
        f"start: {_start(form, opening, literal, is_required)}",
        f"calls: {calls}",
        "function: " + " | ".join([f"f{index}" for index in range(len(functions))]),
    ]
    for index, (name, schema) in enumerate(functions):
        head = literal(json.dumps(name, ensure_ascii=False) + form.between)
        rules.append(f"f{index}: {head} %json {json.dumps(with_options(schema))}")
    if form.call_id:
        rules.append(f"ID: /{form.call_id}/")
    if not is_required:
        rules += _text_rules(form, control_ids)
    return checked("\n".join(rules) + "\n")


def control_ids(form: ToolFormat, vocabulary: Vocabulary) -> dict[str, int]:
    """Those of its pieces that are control tokens in this vocabulary, with their ids."""
    texts = {vocabulary.token_bytes[token_id]: token_id for token_id in vocabulary.special_ids}
    return {piece: texts[piece.encode()] for piece in form.controls if piece.encode() in texts}


class _Literals:
    """A text → the Lark expression that matches it, its control tokens by their ids."""

    def __init__(self, control_ids: Mapping[str, int]) -> None:
        self._ids = control_ids

    def __call__(self, text: str) -> str:
        if not self._ids:
            return json.dumps(text)
        parts = re.split("(" + "|".join([re.escape(piece) for piece in self._ids]) + ")", text)
        return " ".join([f"<[{self._ids[part]}]>" if part in self._ids else json.dumps(part) for part in parts if part])


def _start(form: ToolFormat, opening: str, literal: _Literals, is_required: bool) -> str:
    if is_required or form.is_whole:
        calls = f"{literal(opening)} calls"
        return calls if is_required else f"TEXT? | {calls}"
    return f"TEXT? | trigger {literal(opening.removeprefix(form.trigger))} calls"


def _text_rules(form: ToolFormat, control_ids: Mapping[str, int]) -> list[str]:
    """TEXT, which does not hold the trigger, and, where calls may follow a text, all up to the end of the trigger."""
    if form.is_whole:
        return [f"TEXT: /[^{re.escape(form.trigger)}]{_ANY}/"]
    if form.trigger in control_ids:  # no text holds a control token
        return [f"TEXT: /{_ANY}/", f"trigger: TEXT? <[{control_ids[form.trigger]}]>"]
    trigger = re.escape(form.trigger)
    return [f"TEXT: /{_ANY}/ & ~/{_ANY}{trigger}{_ANY}/", f"trigger[lazy]: /{_ANY}{trigger}/"]
