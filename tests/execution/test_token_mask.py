"""A grammar's masks: what is drawn by them is valid, they follow from the tokens alone, and end where it is whole."""

import json
import threading
from typing import Any

import numpy as np
import pytest

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.execution.held_request import HeldRequest
from engine.execution.token_mask import prepare_mask
from engine.text import grammar
from engine.text.model_source import DEFAULT_MODEL, resolve_model
from engine.text.text_model import load_text_model
from kernels.reference_sampling import draw_token
from kernels.sampling import Draw

TEXT_MODEL = load_text_model(resolve_model(DEFAULT_MODEL), encodes=False)
WORD = {"type": "string", "maxLength": 8}
PERSON = {
    "type": "object",
    "properties": {"name": WORD, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    {"enum": ["yes", "no", 5, None]},
    {"type": "boolean"},
    WORD,
    PERSON,
    {"type": "array", "items": PERSON, "minItems": 2, "maxItems": 2},
    {"type": "string", "pattern": "^[a-c]{3,6}$"},
    {"anyOf": [{"type": "null"}, PERSON]},
    {"$defs": {"p": PERSON}, "type": "object", "properties": {"p": {"$ref": "#/$defs/p"}}, "required": ["p"]},
]


def held(source: str, **sampling: Any) -> HeldRequest:
    return HeldRequest(SamplingParams(**sampling), RequestContents((1,), grammar=source), TEXT_MODEL, [])


def drawn_by(request: HeldRequest, seed: int, max_tokens: int = 400) -> str | None:
    """An answer of noise, as far as the grammar lets it; None when it does not end."""
    generator, token_ids = np.random.default_rng(seed), []
    for _ in range(max_tokens):
        logits = generator.standard_normal(TEXT_MODEL.vocab_size, np.float32)
        draw: Draw = draw_token(logits, request.sampler.next_row())
        assert draw.is_finite
        token_ids.append(draw.token_id)
        if request.takes(draw.token_id):
            return TEXT_MODEL.decode(token_ids)
    return None


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:30])
def test_even_noise_becomes_what_the_schema_says(schema: Any) -> None:
    answer = drawn_by(held(grammar.of_json_schema(schema), seed=3), 1)
    assert answer is not None
    value = json.loads(answer)
    if schema is PERSON:
        assert 0 <= value["age"] <= 150
        assert len(value["name"]) <= 8
    if "enum" in schema:
        assert value in schema["enum"]


def test_patterns_choices_and_grammars_are_followed_to_their_end() -> None:
    assert str(drawn_by(held(grammar.of_pattern("[0-9]{4}-[0-9]{2}")), 2))[4] == "-"
    assert drawn_by(held(grammar.of_choices(["red", 'a "quoted" green'])), 3) in ("red", 'a "quoted" green')
    assert drawn_by(held(grammar.of_grammar('root ::= "x" ("y" | "z") "w"')), 4) in ("xyw", "xzw")
    assert drawn_by(held(grammar.of_grammar('start: "x" /[yz]/ "w"')), 5) in ("xyw", "xzw")


def test_min_tokens_does_not_keep_an_answer_from_being_whole() -> None:
    assert drawn_by(held(grammar.of_choices(["a"]), min_tokens=20), 1) == "a"


def test_masks_follow_from_the_tokens_alone_so_a_handed_over_answer_goes_on_with_the_same() -> None:
    source = grammar.of_json_schema(PERSON)
    first = held(source, ignore_eos=True)
    token_ids = []
    for _ in range(6):
        token_ids.append(draw_token(np.zeros(TEXT_MODEL.vocab_size, np.float32), first.sampler.next_row()).token_id)
        first.takes(token_ids[-1])
    contents = RequestContents((1,), grammar=source, output_token_ids=tuple(token_ids))
    second = HeldRequest(SamplingParams(ignore_eos=True), contents, TEXT_MODEL, [])
    assert first.sampler.next_row().allowed == second.sampler.next_row().allowed


def test_no_control_token_can_be_drawn_within_an_answer() -> None:
    row = held(grammar.of_json_schema(WORD)).sampler.next_row()
    assert row.allowed is not None
    assert not any(row.allowed[special // 32] >> special % 32 & 1 for special in TEXT_MODEL.vocabulary.special_ids)


def test_a_grammar_that_becomes_too_complex_allows_nothing_and_so_fails_alone() -> None:
    request = held("start: nothing_of_that_name")
    assert not draw_token(np.zeros(TEXT_MODEL.vocab_size, np.float32), request.sampler.next_row()).is_finite


@pytest.mark.parametrize(
    ("make", "source", "says"),
    [
        (grammar.of_json_schema, {"type": "objekt"}, "objekt"),
        (grammar.of_json_schema, {"not": {"type": "string"}}, "not"),
        (grammar.of_json_schema, {"x-guidance": 5}, "x-guidance"),
        (grammar.of_json_schema, {"$ref": "#/nowhere"}, "nowhere"),
        (grammar.of_json_schema, False, "empty"),
        (grammar.of_json_schema, {"enum": ["x" * grammar.MAX_GRAMMAR_CHARS]}, "characters"),
        (grammar.of_pattern, "(a", "unclosed"),
        (grammar.of_grammar, "start: nothing", "nothing"),
        (grammar.of_grammar, 'root ::= "a', "GBNF"),
    ],
)
def test_what_nothing_can_be_generated_by_is_refused_and_says_why(make: Any, source: Any, says: str) -> None:
    with pytest.raises(grammar.InvalidGrammar, match=says):
        make(source)


def test_a_mask_that_was_made_beforehand_is_used_once_and_is_the_same() -> None:
    source = grammar.of_choices(["made before", "made later"])
    thread = threading.Thread(target=prepare_mask, args=(TEXT_MODEL, source))
    thread.start()
    thread.join()
    before, later = held(source), held(source)
    assert drawn_by(before, 7) == drawn_by(later, 7)
    prepare_mask(TEXT_MODEL, source)
    assert drawn_by(held(source), 8) == drawn_by(held(source), 8)
