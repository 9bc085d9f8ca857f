"""JSON schemas of growing difficulty: hand-written ones for each keyword, and as many more as wanted by a seed.

All are bounded, so that an answer of a few hundred tokens can be whole, whoever writes it.
"""

import random
from collections.abc import Iterator
from typing import Any

Schema = Any
WORD: Schema = {"type": "string", "maxLength": 8}
_POINT: Schema = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": -9, "maximum": 9}, "y": {"type": "number", "minimum": 0}},
    "required": ["x", "y"],
    "additionalProperties": False,
}

BY_HAND: list[Schema] = [
    {"type": "null"},
    {"enum": ["yes", "no", 5, None, 1.5, {"a": [True]}]},
    {"const": "größe 🦜"},
    {"type": ["integer", "boolean"], "minimum": 3, "maximum": 40},
    {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 9},
    {"type": "integer", "minimum": 0, "maximum": 60, "multipleOf": 5},
    {"type": "string", "minLength": 3, "maxLength": 6},
    {"type": "string", "pattern": "^[A-Z]{2}-\\d{4}$"},
    {"type": "string", "pattern": "^(rain|snow|[ÄÖÜ]{2})$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "uuid"},
    {"type": "array", "items": _POINT, "minItems": 1, "maxItems": 3},
    {
        "type": "array",
        "prefixItems": [{"type": "integer", "minimum": 0, "maximum": 9}, WORD],
        "items": False,
        "minItems": 2,
    },
    {"anyOf": [{"type": "null"}, _POINT, {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}]},
    {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, kind: WORD},
                "required": ["kind", kind],
                "additionalProperties": False,
            }
            for kind in ("cat", "dog")
        ]
    },
    {"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 8}]},
    {
        "$defs": {"point": _POINT},
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point"}},
        "required": ["from", "to"],
        "additionalProperties": False,
    },
    {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 4},
                    "left": {"anyOf": [{"type": "null"}, {"const": "leaf"}]},
                },
                "required": ["name", "left"],
                "additionalProperties": False,
            }
        },
        "type": "array",
        "items": {"$ref": "#/$defs/tree"},
        "maxItems": 2,
    },
    {
        "type": "object",
        "properties": {
            "größe": {"type": "integer", "minimum": 1, "maximum": 300},
            "名前": WORD,
            'a b"c': {"type": "null"},
        },
        "required": ["größe", "名前", 'a b"c'],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99}},
        "patternProperties": {"^x-[a-z]{1,3}$": {"type": "boolean"}},
        "required": ["id"],
        "additionalProperties": False,
        "maxProperties": 2,
    },
    {
        "type": "object",
        "patternProperties": {"^[a-z]{1,3}$": {"type": "boolean"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
]

REFUSED: dict[str, Schema] = {
    "not": {"not": {"type": "string"}},
    "if": {"if": {"type": "string"}, "then": {"maxLength": 3}},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "contains": {"type": "array", "contains": {"type": "integer"}},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "a"}},
    "dependentRequired": {"type": "object", "dependentRequired": {"a": ["b"]}},
    "unevaluatedProperties": {"type": "object", "unevaluatedProperties": False},
    "format": {"type": "string", "format": "nonsense"},
    "look-around": {"type": "string", "pattern": "^(?=a)b"},
    "backreferences": {"type": "string", "pattern": "^(a)\\1$"},
    "oneOf": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    "example.com": {"$ref": "https://example.com/schema.json"},
    "passwd": {"$ref": "file:///etc/passwd"},
}


def schemas(count: int, seed: int = 1) -> list[Schema]:
    """`count` of them: those by hand, then drawn ones, deeper and deeper."""
    drawn = random.Random(seed)
    num_drawn = max(0, count - len(BY_HAND))
    return BY_HAND[:count] + [_object(drawn, 1 + 3 * number // max(1, num_drawn)) for number in range(num_drawn)]


def _schema(drawn: random.Random, depth: int) -> Schema:
    if depth <= 0:
        return drawn.choice(list(_leaves(drawn)))
    match drawn.randrange(4):
        case 0:
            return {"type": "array", "items": _schema(drawn, depth - 1), "maxItems": drawn.randint(1, 2)}
        case 1:
            return {"anyOf": [_schema(drawn, depth - 1), {"type": "null"}]}
        case _:
            return _object(drawn, depth - 1)


def _object(drawn: random.Random, depth: int) -> Schema:
    names = drawn.sample(["id", "name", "tags", "straße", "at", "値", "is_open", "x y"], drawn.randint(1, 3))
    properties = {name: _schema(drawn, depth - 1) for name in names}
    required = [name for name in names if drawn.random() < 0.7]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _leaves(drawn: random.Random) -> Iterator[Schema]:
    low = drawn.randint(-50, 50)
    yield {"type": "integer", "minimum": low, "maximum": low + drawn.randint(0, 500)}
    yield {"type": "string", "minLength": drawn.randint(0, 2), "maxLength": drawn.randint(2, 10)}
    yield {"type": "boolean"}
    yield {"enum": [f"{word}{low}" for word in ("a", "ü", "c")[: drawn.randint(1, 3)]]}
    yield {"type": "string", "pattern": f"^[a-f]{{{drawn.randint(1, 3)},{drawn.randint(3, 6)}}}(-[0-9]{{2}})?$"}
    yield {"type": "string", "format": drawn.choice(["date", "ipv4", "uuid"])}
    yield {"type": ["integer", "null"], "minimum": 0, "maximum": 9}
