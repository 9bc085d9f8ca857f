"""What an answer must read: every field that says it becomes a grammar, what cannot be one is refused by its place."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from daemon.errors import ApiError
from daemon.grammar_maker import GrammarMaker
from daemon.openai_api import read_chat, read_completion
from daemon.structure import read_structure
from engine.text.grammar_order import make_grammar
from tests.daemon.text_models import word_text_model

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture(scope="module")
def maker() -> Iterator[GrammarMaker]:
    maker = GrammarMaker(word_text_model().vocabulary)
    yield maker
    maker.close()


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ({"response_format": {"type": "json_object"}}, '"type": "object"'),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, '"a"'),
        ({"guided_json": SCHEMA}, '"a"'),
        ({"guided_json": '{"enum": ["one"]}'}, "one"),
        ({"guided_regex": "[ab]+"}, "[ab]+"),
        ({"guided_choice": ["one", "two"]}, '"one" | "two"'),
        ({"guided_grammar": 'root ::= "a" | "b"'}, '"b"'),
        ({"structured_outputs": {"json": SCHEMA}}, '"a"'),
        ({"structured_outputs": {"json_object": True}}, '"type": "object"'),
        ({"structured_outputs": {"regex": None, "choice": ["x"]}}, '"x"'),
    ],
)
def test_every_field_becomes_a_grammar(body: dict[str, Any], holds: str) -> None:
    structure = read_structure(body)
    assert structure is not None
    assert holds in make_grammar(structure.order)


def test_text_is_free() -> None:
    assert read_structure({"response_format": {"type": "text"}, "guided_json": None, "structured_outputs": {}}) is None


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"response_format": "json"}, "response_format", "must be an object"),
        ({"response_format": {"type": "xml"}}, "response_format", "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "response_format.json_schema must"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}},
            "response_format",
            "response_format.json_schema.schema must be a JSON schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}},
            "response_format",
            "response_format.json_schema.schema: Invalid type: objekt",
        ),
        ({"guided_json": "{"}, "guided_json", "not valid JSON"),
        ({"guided_regex": "(a"}, "guided_regex", "guided_regex: "),
        ({"guided_regex": ""}, "guided_regex", "must be a text"),
        ({"guided_choice": []}, "guided_choice", "list of 1 to"),
        ({"guided_choice": ["a", 5]}, "guided_choice", "list of 1 to"),
        ({"guided_grammar": "start: nothing"}, "guided_grammar", "nothing"),
        ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs", "structured_outputs.json: "),
        ({"structured_outputs": {"xml": "x"}}, "structured_outputs", "structured_outputs.xml is not supported"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs", "json_object must be true or false"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "give one"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_place(
    maker: GrammarMaker, body: dict[str, Any], param: str, says: str
) -> None:
    async def made() -> None:
        structure = read_structure(body)
        assert structure is not None
        await maker.make(structure)

    with pytest.raises(ApiError) as raised:
        asyncio.run(made())
    assert (raised.value.status, raised.value.param) == (400, param)
    assert says in raised.value.message


def test_both_endpoints_read_them() -> None:
    assert read_completion({"prompt": "x", "guided_regex": "a"}, 10).structure is not None
    chat = read_chat({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}, 10)
    assert chat.structure is not None
    assert chat.unknown_fields == ()
