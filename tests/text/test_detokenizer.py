"""Text as it streams: whole characters only, and the same text however the tokens arrive."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.detokenizer import Detokenizer
from engine.text.text_model import TextModel


def test_a_character_of_several_tokens_comes_whole_with_its_last_one(smollm: TextModel) -> None:
    text = "🦜 é 한국"
    ids = smollm.encode(text)
    assert len(smollm.encode("🦜")) > 1
    detokenizer = Detokenizer(smollm)
    pieces = [detokenizer.push(token_id) for token_id in ids]
    assert "" in pieces
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == text
    assert detokenizer.finish() == ""


def test_an_unfinished_character_becomes_one_replacement_at_the_end(smollm: TextModel) -> None:
    ids = smollm.encode("🌍")
    detokenizer = Detokenizer(smollm)
    assert [detokenizer.push(token_id) for token_id in ids[:-1]] == [""] * (len(ids) - 1)
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_bytes_that_begin_no_character_are_replaced_at_once(smollm: TextModel) -> None:
    half = next(number for number in range(smollm.vocab_size) if smollm.token_bytes(number) == b"\xa9")
    detokenizer = Detokenizer(smollm)
    assert detokenizer.push(half) == "\ufffd"
    assert detokenizer.push(smollm.encode("x")[0]) == "x"


def test_special_tokens_are_left_out_unless_asked_for(smollm: TextModel) -> None:
    assert Detokenizer(smollm).push(2) == ""
    assert Detokenizer(smollm, skip_special_tokens=False).push(2) == "<|im_end|>"


def test_a_special_token_inside_a_character_does_not_break_it(smollm: TextModel) -> None:
    first, *rest = smollm.encode("🦜")
    assert smollm.decode([first, 2, *rest]) == "🦜"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 49151)), max_size=40))
def test_the_text_is_that_of_all_bytes_decoded_at_once(smollm: TextModel, token_ids: list[int]) -> None:
    detokenizer = Detokenizer(smollm)
    text, data = "", b""
    for token_id in token_ids:
        text += detokenizer.push(token_id)
        data += b"" if token_id in smollm.vocabulary.special_ids else smollm.token_bytes(token_id)
        assert data.decode(errors="replace").startswith(text)  # nothing emitted is ever taken back
    assert text + detokenizer.finish() == data.decode(errors="replace") == smollm.decode(token_ids)
