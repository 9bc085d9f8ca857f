"""JSON bodies as the API's document allows them, and as nobody should send them: by seed, the same each time.

Fields, types and bounds are taken from /openapi.json, so a field that is added is attacked without anybody thinking of
it. It must not know HTTP.
"""

import json
import random
from typing import Any

MAX_DEPTH = 4
FEW_TOKENS = 6
_TEXTS = ["", "hello", "a" * 3_000, "\x00", "\ud800", "é漢🦜", "{{7*7}}", "<|im_end|>", "../../etc/passwd", "\r\nX: y"]
_NUMBERS = [0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**64), 10**400, 0.5, -0.0, 1e308, 1e-320, True]
_STRANGE: list[Any] = [None, [], {}, [[]], [None], {"": ""}, {"a": {"a": {"a": {}}}}, *_TEXTS, *_NUMBERS]
_REGEXES = ["(a+)+$", "[", "a{1000000}", "(?=x)", "", ".*" * 50, "\\d{3}"]
_SCHEMAS: list[Any] = [
    {},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}},
    {"type": "nothing"},
    {"enum": []},
    {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
    {"type": "string", "pattern": "(a+)+$"},
    {"anyOf": [{"type": "integer"}] * 200},
    {"$ref": "http://127.0.0.1:1/x"},
    True,
]
_KNOWN = {
    "response_format": [
        {"type": "json_object"},
        *[{"type": "json_schema", "json_schema": {"name": "s", "schema": s}} for s in _SCHEMAS],
    ],
    "guided_json": _SCHEMAS,
    "guided_regex": _REGEXES,
    "guided_grammar": ["start: a", 'root ::= "a"', "%%", ""],
    "tools": [[{"type": "function", "function": {"name": "f", "parameters": s}}] for s in _SCHEMAS],
}
_WORK = {
    "max_tokens": FEW_TOKENS,
    "max_completion_tokens": FEW_TOKENS,
    "max_output_tokens": FEW_TOKENS,
    "n": 2,
    "best_of": 2,
}


def hostile_body(draw: random.Random, schema: dict[str, Any]) -> bytes:
    """Of an operation whose body has `schema`; now and then it is not even JSON."""
    body = _object(draw, schema)
    text = json.dumps(body, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    kind = draw.randrange(20)
    if kind == 0:
        text = text[: draw.randrange(len(text) + 1)]
    elif kind == 1:
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.randbytes(draw.randrange(1, 9)) + text[at:]
    elif kind == 2:
        text = draw.choice([b"", b"[" * 20_000, b'{"prompt":' * 3_000, b"NaN", b"[1,2]", b'"x"', b"\xff\xfe{\x00}\x00"])
    return text


def _object(draw: random.Random, schema: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = schema.get("properties", {})
    wanted = set(schema.get("required", ()))
    body = {}
    for name, each in properties.items():
        if name in wanted or draw.random() < 0.15:
            body[name] = _value(draw, name, each, 0)
    for name in draw.sample(sorted(body), min(len(body), draw.choice([0, 0, 1, 1, 2]))):
        body[name] = draw.choice(_STRANGE)
    if draw.random() < 0.1 and body:
        del body[draw.choice(sorted(body))]
    for name, most in _WORK.items():  # bounds on the work of one answer, where it says something sensible
        if type(body.get(name)) is int and most < body[name] < 1_000_000:
            body[name] = most
    return {**body, **({"max_tokens": FEW_TOKENS} if "max_tokens" in properties and "max_tokens" not in body else {})}


def _value(draw: random.Random, name: str, schema: dict[str, Any], depth: int) -> Any:
    if name in _KNOWN and draw.random() < 0.8:
        return draw.choice(_KNOWN[name])
    if depth > MAX_DEPTH:
        return None
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return _value(draw, name, draw.choice(schema[several]), depth)
    kind = schema.get("type", "string")
    kind = draw.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        inner = {key: _value(draw, key, each, depth + 1) for key, each in schema.get("properties", {}).items()}
        return {key: value for key, value in inner.items() if key in schema.get("required", ()) or draw.random() < 0.5}
    if kind == "array":
        few = draw.randrange(schema.get("minItems", 0), schema.get("minItems", 0) + 4)
        return [_value(draw, name, schema.get("items", {}), depth + 1) for _ in range(few)]
    return _scalar(draw, kind, schema)


def _scalar(draw: random.Random, kind: str, schema: dict[str, Any]) -> Any:
    if kind == "boolean":
        return draw.random() < 0.5
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", -5), schema.get("maximum", 900)
        edges = [low, high, low - 1, high + 1, (low + high) / 2, int(low), min(high, 900)]
        return draw.choice(edges) if kind == "number" else int(draw.choice(edges))
    return None if kind == "null" else draw.choice(_TEXTS)
