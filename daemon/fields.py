"""Strict readers of one field of a request's body: the type and range are checked, the error names the field.

A field that is null counts as not given. Booleans are not numbers, and a number in quotes is a text. This file must
not know which fields there are.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from daemon.errors import bad_request

Body = Mapping[str, Any]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_TOKEN_ID = re.compile(r"[0-9]{1,19}")


def integer(body: Body, name: str, default: int, minimum: int, maximum: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise bad_request(f"{name} must be a whole number, not {kind_of(value)}", name)
    if not minimum <= value <= maximum:
        raise bad_request(f"{name} is {_shown(value)}: it must lie from {minimum} to {maximum}", name)
    return value


def number(
    body: Body, name: str, default: float, minimum: float, maximum: float, *, above_minimum: bool = False
) -> float:
    value = body.get(name)
    if value is None:
        return default
    if type(value) not in (int, float):
        raise bad_request(f"{name} must be a number, not {kind_of(value)}", name)
    is_in_range = minimum <= value <= maximum and not (above_minimum and value == minimum)
    if not is_in_range:
        rule = f"above {minimum:g} and at most {maximum:g}" if above_minimum else f"from {minimum:g} to {maximum:g}"
        raise bad_request(f"{name} is {_shown(value)}: it must be {rule}", name)
    return float(value)


def boolean(body: Body, name: str, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not bool:
        raise bad_request(f"{name} must be true or false, not {kind_of(value)}", name)
    return value


def text(body: Body, name: str, default: str, max_chars: int) -> str:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not str:
        raise bad_request(f"{name} must be a text, not {kind_of(value)}", name)
    if len(value) > max_chars:
        raise bad_request(f"{name} has {len(value)} characters, at most {max_chars} are allowed", name)
    return value


def texts(body: Body, name: str, max_items: int, max_chars: int) -> tuple[str, ...]:
    """One text or a list of them, none empty."""
    value = body.get(name)
    if value is None:
        return ()
    items = [value] if type(value) is str else value
    if type(items) is not list or any(type(item) is not str for item in items):
        raise bad_request(f"{name} must be a text or a list of texts", name)
    if len(items) > max_items:
        raise bad_request(f"{name} has {len(items)} entries, at most {max_items} are allowed", name)
    for item in items:
        if not 0 < len(item) <= max_chars:
            raise bad_request(f"each text in {name} must have from 1 to {max_chars} characters, not {len(item)}", name)
    return tuple(items)


def token_ids(value: Any, name: str, vocab_size: int) -> tuple[int, ...]:
    """A list of token ids, each inside the vocabulary."""
    if type(value) is not list:
        raise bad_request(f"{name} must be a list of token ids, not {kind_of(value)}", name)
    for item in value:
        if type(item) is not int:
            raise bad_request(f"{name} must hold whole numbers only, not {kind_of(item)}", name)
        if not 0 <= item < vocab_size:
            raise bad_request(f"{name} holds the token id {_shown(item)}, known are 0 to {vocab_size - 1}", name)
    return tuple(value)


def logit_bias(body: Body, vocab_size: int, max_items: int) -> tuple[tuple[int, float], ...]:
    """(token id, bias) ascending by token id, from a map whose keys are ids in decimal."""
    value = body.get("logit_bias")
    if value is None:
        return ()
    if type(value) is not dict:
        raise bad_request(f"logit_bias must map token ids to biases, not be {kind_of(value)}", "logit_bias")
    if len(value) > max_items:
        raise bad_request(f"logit_bias has {len(value)} entries, at most {max_items} are allowed", "logit_bias")
    biases: dict[int, float] = {}
    for key in value:
        if not _TOKEN_ID.fullmatch(key) or int(key) >= vocab_size:
            raise bad_request(
                f"logit_bias holds the token id {key[:40]!r}, known are 0 to {vocab_size - 1}", "logit_bias"
            )
        if int(key) in biases:
            raise bad_request(f"logit_bias holds the token id {int(key)} twice", "logit_bias")
        biases[int(key)] = _bias(value, key)
    return tuple(sorted(biases.items()))


def kind_of(value: Any) -> str:
    """JSON's own word for the type of `value`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for types, word in ((int, "a whole number"), (float, "a fraction"), (str, "a text"), (list, "a list")):
        if isinstance(value, types):
            return word
    return "an object"


def _bias(value: Mapping[str, Any], key: str) -> float:
    bias = value[key]
    if type(bias) not in (int, float) or not math.isfinite(bias) or not -100 <= bias <= 100:
        raise bad_request(f"logit_bias for token {key} must be a number from -100 to 100", "logit_bias")
    return float(bias)


def _shown(value: int | float) -> str:
    digits = str(value)
    return digits if len(digits) <= 40 else f"{digits[:20]}… ({len(digits)} digits)"
