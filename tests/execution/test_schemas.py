"""What is drawn under a schema is valid by `jsonschema`; what cannot be followed is refused and names the keyword."""

import json
from typing import Any

import jsonschema
import pytest

from engine.text import grammar
from tests.execution.schemas import REFUSED, schemas
from tests.execution.test_token_mask import drawn_by, held

EVERY = 8  # of the schemas that the slow test asks the model for


def must_be_valid(text: str, schema: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    validator.validate(json.loads(text))


@pytest.mark.parametrize("schema", schemas(200)[::EVERY], ids=lambda schema: json.dumps(schema)[:40])
def test_even_noise_is_valid_under_a_schema_of_each_kind(schema: Any) -> None:
    answer = drawn_by(held(grammar.of_json_schema(schema), seed=3), 1, max_tokens=600)
    assert answer is not None, "it did not end"
    must_be_valid(answer, schema)


@pytest.mark.parametrize("keyword", REFUSED)
def test_what_cannot_be_followed_names_its_keyword(keyword: str) -> None:
    with pytest.raises(grammar.InvalidGrammar, match=keyword):
        grammar.of_json_schema(REFUSED[keyword])
