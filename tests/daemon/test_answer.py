"""Deltas of one choice: whole characters, nothing of a stop string, and every token told exactly once."""

import pytest

from daemon.answer import Answer, Delta
from engine.core.contents import TokenOutput
from engine.text.text_model import TextModel
from tests.daemon.text_models import END_OF_TEXT, byte_text_model


@pytest.fixture(scope="module")
def text_model() -> TextModel:
    return byte_text_model()


def deltas_of(answer: Answer, text: bytes) -> list[Delta]:
    """What is told for each byte of `text` as one token, and at the end."""
    pushed = [answer.push(TokenOutput(1, byte, -0.5, ((byte, -0.5), (65, -1.5)))) for byte in text]
    return [delta for delta in pushed if delta is not None] + [answer.finish()]


def test_plain_text_is_told_token_by_token(text_model: TextModel) -> None:
    deltas = deltas_of(Answer(text_model), b"abc")
    assert [delta.text for delta in deltas] == ["a", "b", "c", ""]
    assert [delta.token_ids for delta in deltas] == [(97,), (98,), (99,), ()]


def test_a_character_of_several_tokens_is_told_once_and_whole(text_model: TextModel) -> None:
    deltas = deltas_of(Answer(text_model), "🦜é".encode())
    assert [delta.text for delta in deltas] == ["🦜", "é", ""]
    assert [len(delta.token_ids) for delta in deltas] == [4, 2, 0]


def test_a_character_cut_off_by_the_end_is_replaced_once(text_model: TextModel) -> None:
    deltas = deltas_of(Answer(text_model), "a🦜".encode()[:-1])
    assert [delta.text for delta in deltas] == ["a", "\ufffd"]
    assert len(deltas[-1].token_ids) == 3


def test_a_stop_string_is_cut_off_and_its_tokens_are_still_told(text_model: TextModel) -> None:
    answer = Answer(text_model, stop_strings=("STOP",), wants_logprobs=True)
    joined = Delta.joined(deltas_of(answer, b"go STOP"))
    assert joined.text == "go "
    assert bytes(joined.token_ids) == b"go STOP"
    assert "".join(entry.text for entry in joined.logprobs) == "go STOP"


def test_what_may_become_a_stop_string_is_held_and_released_when_it_cannot(text_model: TextModel) -> None:
    deltas = deltas_of(Answer(text_model, stop_strings=("abcd",)), b"xabceabc")
    assert [delta.text for delta in deltas] == ["x", "abce", "abc"]
    assert deltas[1].token_ids == tuple(b"abce")


def test_a_stop_string_before_min_tokens_is_plain_text(text_model: TextModel) -> None:
    answer = Answer(text_model, stop_strings=("b",), min_tokens=3)
    assert Delta.joined(deltas_of(answer, b"abab")).text == "aba"


def test_every_token_has_its_logprobs_even_without_text(text_model: TextModel) -> None:
    answer = Answer(text_model, wants_logprobs=True)
    pushed = answer.push(TokenOutput(1, END_OF_TEXT, -2.0))
    assert pushed is None
    assert [entry.logprob for entry in answer.finish().logprobs] == [-2.0]


def test_a_token_that_is_half_a_character_has_a_distinct_spelling_and_its_bytes(text_model: TextModel) -> None:
    answer = Answer(text_model, wants_logprobs=True)
    entries = Delta.joined(deltas_of(answer, "aé".encode())).logprobs
    assert [entry.text for entry in entries] == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert [entry.raw for entry in entries] == [b"a", b"\xc3", b"\xa9"]
    assert [entry.text_offset for entry in entries] == [0, 1, 1]
    assert entries[1].top == (("bytes:\\xc3", b"\xc3", -0.5), ("A", b"A", -1.5))


def test_streamed_deltas_join_to_the_same_text_for_every_cut(text_model: TextModel) -> None:
    text = "a STO🦜P STOP b".encode()
    for length in range(len(text) + 1):
        plain = Delta.joined(deltas_of(Answer(text_model, stop_strings=("STOP", "TO🦜Q")), text[:length]))
        expected = text[:length].decode(errors="replace").split("STOP")[0]
        assert plain.text == expected
        assert bytes(plain.token_ids) == text[:length]
