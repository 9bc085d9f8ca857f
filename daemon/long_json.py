"""JSON of bodies that hold megabytes, in short pieces: one piece at a time keeps the interpreter to itself.

So a thread may write them while the event loop goes on. The text is that of `json.dumps` without blanks. It must not
know what they say.
"""

import json
from collections.abc import Iterator
from typing import Any

MANY = 256  # items of a list that make a piece: about a millisecond

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def long_json(value: Any) -> str:
    """Objects have texts for keys. Raises what `json.dumps` raises."""
    return "".join(_pieces(value))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else ''}{_ENCODER.encode(name)}:"
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, list) and len(value) > MANY:
        yield "["
        for start in range(0, len(value), MANY):
            yield "," if start else ""
            yield _ENCODER.encode(value[start : start + MANY])[1:-1]
        yield "]"
    elif isinstance(value, list):
        yield "["
        for number, item in enumerate(value):
            yield "," if number else ""
            yield from _pieces(item)
        yield "]"
    else:
        yield _ENCODER.encode(value)
