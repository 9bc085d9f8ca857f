"""The default model's vocabulary, against a naive tokenizer and values worked out by hand; the other word rules."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import ModelError
from engine.text.gguf_metadata import read_gguf_metadata
from engine.text.model_source import ModelSource, resolve_model
from engine.text.text_model import TextModel, UnencodableText, UnknownToken, load_text_model
from engine.text.token_bytes import byte_level_alphabet
from tests.text.gguf_files import write_byte_level

# The default model's vocabulary lacks these bytes, so characters that need them vanish, as with its own tokenizer.json.
_MISSING_BYTES = bytes([0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2])
_SPECIAL = re.compile(r"<[|\w]+>")
_texts = st.text().filter(lambda text: not set(text.encode()) & set(_MISSING_BYTES) and not _SPECIAL.search(text))


def _words(text: str) -> list[str]:
    """The word rule `smollm`, for ASCII letters and digits: digits alone, then GPT-2's pattern."""
    parts = re.findall(r"[0-9]|[^0-9]+", text)
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
    return [word for part in parts for word in re.findall(pattern, part)]


class _NaiveTokenizer:
    """Byte-pair encoding straight from its definition: again and again the best-ranked pair of neighbours."""

    def __init__(self, path: Path) -> None:
        metadata = read_gguf_metadata(path)
        self.ids = {token: number for number, token in enumerate(metadata.strings("tokenizer.ggml.tokens"))}
        self.ranks = {line: rank for rank, line in enumerate(metadata.strings("tokenizer.ggml.merges"))}

    def encode(self, text: str) -> list[int]:
        alphabet = byte_level_alphabet()
        ids = []
        for word in _words(text):
            parts = [alphabet[byte] for byte in word.encode()]
            while True:
                pairs = [f"{left} {right}" for left, right in pairwise(parts)]
                best = min(pairs, key=lambda pair: self.ranks.get(pair, 1 << 30), default="")
                if best not in self.ranks:
                    break
                at = pairs.index(best)
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            ids += [self.ids[part] for part in parts]
        return ids


@pytest.fixture(scope="module")
def naive(default_source: ModelSource) -> _NaiveTokenizer:
    return _NaiveTokenizer(default_source.path)


def test_the_default_model_is_described_by_its_own_metadata(smollm: TextModel) -> None:
    assert (smollm.vocab_size, smollm.context_length) == (49152, 8192)
    assert smollm.eos_token_ids == (0, 2)  # <|endoftext|> and <|im_end|>
    assert [smollm.token_text(number) for number in (0, 1, 2)] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def test_known_texts_have_known_tokens(smollm: TextModel) -> None:
    assert smollm.encode("Hello, world!") == [19556, 28, 905, 17]
    assert smollm.encode("a1 23") == [81, 33, 216, 34, 35]  # every digit is a token, and so is the space before it
    assert smollm.encode("") == []


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCXYZ 0123456789.,'!\n\t-<|", max_size=60).filter(
        lambda t: not _SPECIAL.search(t)
    )
)
def test_tokens_are_those_of_byte_pair_encoding_by_definition(
    smollm: TextModel, naive: _NaiveTokenizer, text: str
) -> None:
    assert smollm.encode(text) == naive.encode(text)


@pytest.mark.parametrize(
    "text",
    [
        "naïve café",
        "漢字かな交じり",
        "한국어",
        "Ελληνικά",
        "العربية",
        "हिन्दी",
        "🦜🌍👩‍👩‍👧",
        "a\u0301\u200d",
        "  \t\n ",
        "\x00\x7f",
    ],
)
def test_every_script_comes_back_as_it_went_in(smollm: TextModel, text: str) -> None:
    assert smollm.decode(smollm.encode(text)) == text


@settings(max_examples=300, deadline=None)
@given(_texts)
def test_any_text_comes_back_as_it_went_in(smollm: TextModel, text: str) -> None:
    assert smollm.decode(smollm.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 49151), max_size=30))
def test_decoding_agrees_with_the_tokenizers_package(smollm: TextModel, token_ids: list[int]) -> None:
    expected = smollm.tokenizer.decode(token_ids, skip_special_tokens=True)
    assert smollm.decode(token_ids) == expected
    assert smollm.decode(token_ids) == b"".join(
        [smollm.token_bytes(number) for number in token_ids if number not in smollm.vocabulary.special_ids]
    ).decode(errors="replace")


def test_a_special_token_in_a_text_becomes_that_token_and_leaves_no_text(smollm: TextModel) -> None:
    ids = smollm.encode("a<|im_end|>b")
    assert ids == [81, 2, 82]
    assert smollm.decode(ids) == "ab"
    assert smollm.decode(ids, skip_special_tokens=False) == "a<|im_end|>b"


def test_half_a_character_is_refused_with_its_place(smollm: TextModel) -> None:
    with pytest.raises(UnencodableText, match="character 2 "):
        smollm.encode("ab\ud83d")


@pytest.mark.parametrize("token_id", [-1, 49152, 1 << 40])
def test_an_id_outside_the_vocabulary_is_refused(smollm: TextModel, token_id: int) -> None:
    for use in (smollm.token_bytes, smollm.token_text, lambda number: smollm.decode([number])):
        with pytest.raises(UnknownToken, match="0 to 49151"):
            use(token_id)


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("smollm", ["x", " ", "1", "2", "3", "4", "!", "\n", "\n", "DON", "'", "T"]),
        ("gpt-2", ["x", " 1234", "!", "\n", "\n", "DON", "'", "T"]),
        ("llama-bpe", ["x", " ", "123", "4", "!\n\n", "DON", "'T"]),
        ("qwen2", ["x", " ", "1", "2", "3", "4", "!\n\n", "DON", "'T"]),
    ],
)
def test_each_rule_cuts_text_into_its_own_words(tmp_path: Path, pre: str, expected: list[str]) -> None:
    model = load_text_model(resolve_model(str(write_byte_level(tmp_path / "m.gguf", pre))))
    pre_tokenizer = model.tokenizer.pre_tokenizer
    assert pre_tokenizer is not None
    words = [word for word, _ in pre_tokenizer.pre_tokenize_str("x 1234!\n\nDON'T")]
    alphabet = byte_level_alphabet()
    assert words == ["".join([alphabet[byte] for byte in word.encode()]) for word in expected]


def test_llama_3_puts_bos_before_a_text_and_keeps_words_that_are_tokens(tmp_path: Path) -> None:
    path = write_byte_level(tmp_path / "m.gguf", "llama-bpe", merges=("a b",), words=("abc",))
    model = load_text_model(resolve_model(str(path)))
    abc = model.vocab_size - 1
    assert model.encode("abc") == [0, abc]  # no merge makes it
    assert model.encode("abc", add_special=False) == [abc]


def test_the_file_says_which_tokens_stand_around_a_text(tmp_path: Path) -> None:
    path = write_byte_level(tmp_path / "m.gguf", "llama-bpe", add_bos_token=False, add_eos_token=True)
    model = load_text_model(resolve_model(str(path)))
    assert model.encode("a") == [model.encode("a", add_special=False)[0], 1]


def test_an_unknown_word_rule_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'klingon'.*smollm"):
        load_text_model(resolve_model(str(write_byte_level(tmp_path / "m.gguf", "klingon"))))


def test_a_merge_of_tokens_that_are_not_there_is_refused(tmp_path: Path) -> None:
    path = write_byte_level(tmp_path / "m.gguf", "gpt-2", merges=("a b",))
    path.write_bytes(path.read_bytes().replace(b"a b", b"a  "))
    with pytest.raises(ModelError, match=r"m\.gguf"):
        load_text_model(resolve_model(str(path)))


def test_an_eos_token_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write_byte_level(tmp_path / "m.gguf", "gpt-2", eot_token_id=9999)
    with pytest.raises(ModelError, match="eot_token_id is 9999"):
        load_text_model(resolve_model(str(path)))
