"""A text model that was loaded to decode only means the same by a token, without a tokenizer in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.text.model_source import DEFAULT_MODEL, resolve_model
from engine.text.text_model import load_text_model
from tests.text.gguf_files import write_byte_level, write_sentencepiece

FILES: list[Callable[[Path], Path]] = [
    lambda folder: write_byte_level(folder / "m.gguf", "smollm", merges=("a b", "Ġ t")),
    lambda folder: write_sentencepiece(folder / "m.gguf"),
    lambda folder: resolve_model(DEFAULT_MODEL).path,
]


@pytest.mark.parametrize("write", FILES, ids=["byte-level", "sentencepiece", "default model"])
def test_what_tokens_mean_does_not_depend_on_the_tokenizer(write: Callable[[Path], Path], tmp_path: Path) -> None:
    source = resolve_model(str(write(tmp_path)))
    both, decoding = load_text_model(source), load_text_model(source, encodes=False)
    assert decoding.vocabulary.tokenizer is None
    for name in ("token_bytes", "special_ids", "eos_token_ids", "strips_leading_space", "context_length"):
        assert getattr(decoding.vocabulary, name) == getattr(both.vocabulary, name), name
    ids = range(0, both.vocab_size, 1 + both.vocab_size // 500)
    assert decoding.decode(ids) == both.decode(ids)
