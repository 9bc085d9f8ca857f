"""`suffix`: the answer belongs between two texts, where the model has marks for that; refused where it has none."""

import asyncio
from dataclasses import replace

import pytest

from daemon.errors import ApiError
from daemon.openai_api import read_completion
from daemon.prompt_encoder import PromptEncoder
from engine.clock import ManualClock
from engine.text.text_model import TextModel
from tests.daemon.text_models import byte_text_model

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def marked_text_model() -> TextModel:
    vocabulary = byte_text_model().vocabulary
    assert vocabulary.tokenizer is not None
    vocabulary.tokenizer.add_tokens(["<end>", *MARKS])  # ids 256 to 259
    return TextModel(replace(vocabulary, token_bytes=(*vocabulary.token_bytes, *[mark.encode() for mark in MARKS])))


def encoded(text_model: TextModel, prompt: str | list[int], suffix: str) -> tuple[int, ...]:
    encoder = PromptEncoder(text_model, ManualClock())
    question = read_completion({"prompt": prompt, "suffix": suffix}, text_model.vocab_size)
    try:
        (prompt_ids,) = asyncio.run(encoder.encode(question, 512))
    finally:
        encoder.close()
    return prompt_ids


def test_the_marks_stand_around_both_texts() -> None:
    expected = (257, *b"def f(", 258, *b"): pass", 259)
    assert encoded(marked_text_model(), "def f(", "): pass") == expected
    assert encoded(marked_text_model(), list(b"def f("), "): pass") == expected


def test_an_empty_suffix_changes_nothing() -> None:
    assert encoded(byte_text_model(), "abc", "") == tuple(b"abc")


def test_a_model_without_marks_refuses_it_by_name() -> None:
    with pytest.raises(ApiError, match="no tokens that mark a gap") as raised:
        encoded(byte_text_model(), "abc", "def")
    assert raised.value.param == "suffix"
