"""A small SentencePiece vocabulary in a GGUF file, against the algorithm as SentencePiece defines it."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import ModelError
from engine.text.detokenizer import Detokenizer
from engine.text.model_source import resolve_model
from engine.text.text_model import TextModel, load_text_model
from tests.text.gguf_files import SPM_PIECES, write_sentencepiece

_IDS = {piece: number for number, (piece, _, _) in enumerate(SPM_PIECES)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    path = write_sentencepiece(tmp_path_factory.mktemp("spm") / "m.gguf")
    return load_text_model(resolve_model(str(path)))


def _naive_encode(text: str) -> list[int]:
    """Again and again the neighbours whose union has the highest score; bytes for characters without a token."""
    scores = {piece: score for piece, kind, score in SPM_PIECES if kind == 1}
    parts = list(("▁" + text).replace(" ", "▁")) if text else []
    while True:
        unions = [left + right for left, right in pairwise(parts)]
        best = max(unions, key=lambda union: scores.get(union, -1e9), default="")
        if best not in scores:
            break
        at = unions.index(best)
        parts[at : at + 2] = [best]
    ids = []
    for part in parts:
        ids += [_IDS[part]] if part in scores else [_IDS[f"<0x{byte:02X}>"] for byte in part.encode()]
    return ids


def test_known_texts_have_known_tokens(model: TextModel) -> None:
    assert model.encode("hello world") == [1, _IDS["▁hello"], _IDS["▁world"]]
    assert model.encode("hello", add_special=False) == [_IDS["▁hello"]]
    assert model.encode("ü", add_special=False) == [_IDS["▁"], _IDS["<0xC3>"], _IDS["<0xBC>"]]
    assert model.eos_token_ids == (2,)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="helowrda  éü漢", max_size=40))
def test_tokens_are_those_of_sentencepiece_by_definition(model: TextModel, text: str) -> None:
    assert model.encode(text, add_special=False) == _naive_encode(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="▁<["), max_size=40))
def test_any_text_comes_back_as_it_went_in(model: TextModel, text: str) -> None:
    assert model.decode(model.encode(text)) == text


def test_the_space_before_a_text_is_taken_away_once(model: TextModel) -> None:
    ids = [_IDS["▁hello"], _IDS["▁world"]]
    assert model.decode(ids) == "hello world" == model.tokenizer.decode(ids)
    assert (
        model.decode([_IDS["▁▁"], _IDS["▁hello"]]) == "  hello" == model.tokenizer.decode([_IDS["▁▁"], _IDS["▁hello"]])
    )
    assert model.decode([1, _IDS["▁hello"]]) == "hello"  # a special token before it is no text


def test_an_answer_that_follows_a_prompt_keeps_its_first_space(model: TextModel) -> None:
    detokenizer = Detokenizer(model, follows_text=True)
    assert detokenizer.push(_IDS["▁world"]) == " world"


def test_a_byte_token_stands_for_its_byte_and_a_user_token_for_itself(model: TextModel) -> None:
    assert model.token_bytes(_IDS["<0xE2>"]) == b"\xe2"
    assert model.token_text(_IDS["<0xE2>"]) == "\ufffd"
    assert model.token_text(_IDS["▁hello"]) == " hello"
    ids = model.encode("[INST]", add_special=False)
    assert ids == [_IDS["[INST]"]]
    assert model.decode(ids) == "[INST]"


def test_a_file_may_say_that_no_space_is_put_before_a_text(tmp_path: Path) -> None:
    path = write_sentencepiece(tmp_path / "m.gguf", add_space_prefix=False, add_bos_token=False)
    model = load_text_model(resolve_model(str(path)))
    assert model.encode("lo") == [_IDS["lo"]]
    assert model.decode([_IDS["▁hello"]]) == " hello"


def test_scores_that_do_not_fit_the_tokens_are_refused(tmp_path: Path) -> None:
    path = write_sentencepiece(tmp_path / "m.gguf", scores=[0.0, 1.0])
    with pytest.raises(ModelError, match="2 scores"):
        load_text_model(resolve_model(str(path)))
