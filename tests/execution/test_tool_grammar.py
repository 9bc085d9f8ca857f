"""The grammar of calls holds even noise to the tools that were given: names, arguments, and one format's shape."""

import json
from typing import Any

import numpy as np
import pytest

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.execution.held_request import HeldRequest
from engine.execution.token_mask import TokenMask
from engine.text.grammar import InvalidGrammar
from engine.text.tool_format import FORMATS, HERMES, LLAMA, MISTRAL, ToolFormat
from engine.text.tool_grammar import of_calls
from kernels.reference_sampling import draw_token
from tests.execution.test_token_mask import TEXT_MODEL

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTIONS: list[tuple[str, Any]] = [("weather", CITY), ("uhr-é", {"type": "object", "additionalProperties": False})]
IDS = {each: number for number, each in enumerate(TEXT_MODEL.vocabulary.token_bytes)}
MARK = 17  # a control token, in the place of those that this vocabulary lacks


def grammar_of(form: ToolFormat, ids: dict[str, int] | None = None, *, required: bool, parallel: bool = True) -> str:
    return of_calls(form, FUNCTIONS, ids or {}, is_required=required, is_parallel=parallel)


def written(form: ToolFormat, *calls: tuple[str, str]) -> str:
    each = [
        form.opening + json.dumps(name, ensure_ascii=False) + form.between + arguments + form.closing
        for name, arguments in calls
    ]
    return form.begins + (form.separator or "").join(each) + form.ends


def follows(source: str, text: str, marks: tuple[str, ...] = ()) -> bool:
    """Whether an answer may read `text`, and end there; the pieces in `marks` as control tokens."""
    mask = TokenMask(TEXT_MODEL, source)
    rest = text.encode()
    while rest:
        mark = next((piece.encode() for piece in marks if rest.startswith(piece.encode())), b"")
        ids = (
            [(MARK, mark)] if mark else [(IDS[rest[:end]], rest[:end]) for end in range(16, 0, -1) if rest[:end] in IDS]
        )
        token = next((each for each in ids if is_allowed(mask, each[0])), None)
        if token is None:
            return False
        mask.take(token[0])
        rest = rest[len(token[1]) :]
    return mask.is_complete or is_allowed(mask, TEXT_MODEL.eos_token_ids[0])


def is_allowed(mask: TokenMask, token_id: int) -> bool:
    words = mask.allowed()
    return bool(words and words[token_id // 32] >> token_id % 32 & 1)


@pytest.mark.parametrize("is_control", [False, True])
@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_a_choice_is_a_text_or_calls_and_a_must_is_calls(form: ToolFormat, is_control: bool) -> None:
    marks = form.controls[:1] if is_control else ()
    ids = dict.fromkeys(marks, MARK)
    one, two = ("weather", '{"city": "Ulm"}'), ("uhr-é", "{}")
    free, must = grammar_of(form, ids, required=False), grammar_of(form, ids, required=True)
    for source in (free, must):
        assert follows(source, written(form, one), marks)
        assert follows(source, written(form, one, two), marks) == (form.separator is not None)
        assert not follows(source, written(form, ("nothing", "{}")), marks)
        assert not follows(source, written(form, ("uhr-é", '{"a": 1}')), marks)
        assert not follows(source, written(form, one)[:-3], marks)
    assert follows(free, "Plain text, <of any kind>.")
    assert follows(free, "")
    assert not follows(must, "Plain text.")
    assert follows(free, "Let me see.\n" + written(form, two), marks)
    assert not follows(must, "Let me see.\n" + written(form, two), marks)
    single = grammar_of(form, ids, required=False, parallel=False)
    assert follows(single, written(form, one), marks)
    if not form.is_whole:
        assert not follows(single, written(form, one, two), marks)


@pytest.mark.parametrize("form", [HERMES, LLAMA, MISTRAL], ids=lambda form: form.name)
def test_even_noise_becomes_a_call_of_a_given_function(form: ToolFormat) -> None:
    contents = RequestContents((1,), grammar=grammar_of(form, required=True, parallel=False))
    request = HeldRequest(SamplingParams(), contents, TEXT_MODEL, [])
    generator, token_ids = np.random.default_rng(5), list[int]()
    while True:
        logits = generator.standard_normal(TEXT_MODEL.vocab_size, np.float32)
        token_ids.append(draw_token(logits, request.sampler.next_row()).token_id)
        if request.takes(token_ids[-1]):
            break
    text = TEXT_MODEL.decode(token_ids)
    call = text.removeprefix(form.begins).removeprefix("<tool_call>").removesuffix("</tool_call>")
    name, arguments, *_call_id = json.loads(call.removesuffix(form.ends)).values()
    assert name in ("weather", "uhr-é")
    assert (set(arguments) == {"city"}) == (name == "weather")


def test_a_schema_that_cannot_be_followed_is_named_by_its_function() -> None:
    with pytest.raises(InvalidGrammar, match=r"the parameters of 'odd': .*not"):
        of_calls(HERMES, [("odd", {"not": {}})], {}, is_required=True, is_parallel=True)
