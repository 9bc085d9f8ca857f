"""Fields that say what an answer must read → one grammar: the API's `response_format`, vLLM's `structured_outputs` and
`guided_…`, and a tool that must be called. It must not know how tokens are drawn by it.
"""

import json
from dataclasses import dataclass
from typing import Any

from daemon import fields
from daemon.errors import ApiError, bad_request
from daemon.fields import Body, kind_of
from engine.text.grammar import MAX_GRAMMAR_CHARS
from engine.text.grammar_order import GrammarOrder

MAX_CHOICES = 1024


@dataclass(frozen=True, slots=True)
class Structure:
    """
    place   of the field, as an error names it
    field   the body's own field it lies in
    order   how its grammar is made
    """

    place: str
    field: str
    order: GrammarOrder


def read_structure(body: Body) -> Structure | None:
    """What the answer must read; None where it is free. Raises ApiError 400, also for two at once."""
    found = [_of_response_format(body), *_guided(body), *_structured_outputs(body)]
    asked = [structure for structure in found if structure is not None]
    if len(asked) > 1:
        names = " and ".join([structure.place for structure in asked])
        raise bad_request(f"{names} both say what the answer must read: give one", asked[1].field)
    return asked[0] if asked else None


def of_schema(schema: Any, place: str, field: str) -> Structure:
    """JSON by a schema, given as an object or as its text."""
    if type(schema) is str:
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise bad_request(f"{place} is not valid JSON: {error}", field) from error
    if type(schema) not in (dict, bool):
        raise bad_request(f"{place} must be a JSON schema, not {kind_of(schema)}", field)
    return Structure(place, field, GrammarOrder("json", (schema,)))


def _of_response_format(body: Body) -> Structure | None:
    name = "response_format"
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not dict:
        raise bad_request(f"{name} must be an object, not {kind_of(value)}", name)
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return Structure(name, name, GrammarOrder("object"))
        case "json_schema":
            described = value.get("json_schema")
            if type(described) is not dict:
                raise bad_request(f"{name}.json_schema must be an object, not {kind_of(described)}", name)
            return of_schema(described.get("schema"), f"{name}.json_schema.schema", name)
    raise bad_request(f"{name}.type must be text, json_object or json_schema", name)


def _guided(body: Body) -> list[Structure | None]:
    return [_of(kind, body.get(f"guided_{kind}"), f"guided_{kind}", f"guided_{kind}") for kind in _KINDS]


def _structured_outputs(body: Body) -> list[Structure | None]:
    name = "structured_outputs"
    value = body.get(name)
    if value is None:
        return []
    if type(value) is not dict:
        raise bad_request(f"{name} must be an object, not {kind_of(value)}", name)
    unknown = [key for key in value if key not in (*_KINDS, "json_object") and value[key] is not None]
    if unknown:
        raise bad_request(f"{name}.{unknown[0][:64]} is not supported: give json, json_object, {_NAMES}", name)
    structures = [_of(kind, value.get(kind), f"{name}.{kind}", name) for kind in _KINDS]
    try:
        if fields.boolean(value, "json_object"):
            structures.append(Structure(f"{name}.json_object", name, GrammarOrder("object")))
    except ApiError as error:
        raise bad_request(f"{name}: {error.message}", name) from error
    return structures


def _of(kind: str, value: Any, place: str, field: str) -> Structure | None:
    if value is None:
        return None
    if kind == "json":
        return of_schema(value, place, field)
    if kind == "choice":
        return Structure(place, field, GrammarOrder(kind, (_choices(value, place, field),)))
    if type(value) is not str or not 0 < len(value) <= MAX_GRAMMAR_CHARS:
        raise bad_request(f"{place} must be a text of 1 to {MAX_GRAMMAR_CHARS} characters", field)
    return Structure(place, field, GrammarOrder(kind, (value,)))


def _choices(value: Any, place: str, field: str) -> list[str]:
    is_list = type(value) is list and 0 < len(value) <= MAX_CHOICES
    if not is_list or any(type(item) is not str or not item for item in value):
        raise bad_request(f"{place} must be a list of 1 to {MAX_CHOICES} texts, none empty", field)
    return list(value)


_KINDS = ("json", "regex", "choice", "grammar")
_NAMES = "regex, choice or grammar"
