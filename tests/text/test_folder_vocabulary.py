"""Hugging Face folders, written by the test with the `tokenizers` package."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.core.errors import ModelError
from engine.text.chat_template import ChatTemplateError
from engine.text.model_source import resolve_model
from engine.text.text_model import TextModel, UnknownToken, load_text_model
from engine.text.token_bytes import byte_level_alphabet


def _byte_level() -> Tokenizer:
    vocab = {character: number for number, character in enumerate(byte_level_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab | {"ab": 256}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True), AddedToken("<turn>", special=True)])  # 257, 258
    tokenizer.add_tokens([AddedToken("é!")])  # 259
    tokenizer.enable_truncation(4)  # a setting left over from training
    tokenizer.enable_padding(length=8)
    return tokenizer


def _sentencepiece() -> Tokenizer:
    vocab = {
        "<unk>": 0,
        **{f"<0x{byte:02X}>": 1 + byte for byte in range(256)},
        "▁": 257,
        "h": 258,
        "i": 259,
        "▁h": 260,
    }
    tokenizer = Tokenizer(models.BPE(vocab, [("▁", "h")], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _folder(path: Path, saved: Tokenizer, **files: Any) -> Path:
    """`files` by name without .json; None leaves one out, a string is written as it is."""
    contents = {"config": {"vocab_size": 260, "max_position_embeddings": 64, "eos_token_id": 257}} | files
    path.mkdir(exist_ok=True)
    saved.save(str(path / "tokenizer.json"))
    for name, content in contents.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (path / f"{name}.json").write_text(text)
    return path


def _load(folder: Path) -> TextModel:
    return load_text_model(resolve_model(str(folder)))


def test_a_folder_gives_tokens_and_text_as_its_tokenizer_does(tmp_path: Path) -> None:
    model = _load(_folder(tmp_path / "m", _byte_level()))
    text = "abc é!<turn>漢"
    ids = model.encode(text)
    assert ids[0] == 256
    assert {258, 259} <= set(ids)
    assert model.decode(ids) == "abc é!漢"
    assert model.decode(ids, skip_special_tokens=False) == text
    assert (model.vocab_size, model.context_length, model.eos_token_ids) == (260, 64, (257,))


def test_settings_of_training_neither_cut_nor_pad_a_prompt(tmp_path: Path) -> None:
    model = _load(_folder(tmp_path / "m", _byte_level()))
    assert len(model.encode("x" * 50)) == 50
    assert len(model.encode("x")) == 1


def test_a_sentencepiece_folder_decodes_as_its_tokenizer_does(tmp_path: Path) -> None:
    config = {"vocab_size": 261, "max_position_embeddings": 64}
    model = _load(_folder(tmp_path / "m", _sentencepiece(), config=config))
    ids = model.encode("hi hü")
    assert model.decode(ids) == "hi hü" == model.tokenizer.decode(ids)
    assert model.token_bytes(260) == b" h"
    assert model.eos_token_ids == ()


def test_the_ends_of_an_answer_come_from_generation_config_first(tmp_path: Path) -> None:
    generation, settings = {"eos_token_id": [258]}, {"eos_token": {"content": "<eos>"}}
    folder = _folder(tmp_path / "m", _byte_level(), generation_config=generation, tokenizer_config=settings)
    assert _load(folder).eos_token_ids == (257, 258)


@pytest.mark.parametrize(
    "template", ["{{ eos_token }}|{{ messages[0].content }}", [{"name": "default", "template": "{{ eos_token }}|Hi"}]]
)
def test_the_chat_template_of_the_tokenizer_config_is_used(tmp_path: Path, template: Any) -> None:
    settings = {"chat_template": template, "eos_token": "<eos>"}
    model = _load(_folder(tmp_path / "m", _byte_level(), tokenizer_config=settings))
    assert model.render_chat([{"role": "user", "content": "Hi"}]) == "<eos>|Hi"


def test_a_template_file_goes_before_the_tokenizer_config(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m", _byte_level(), tokenizer_config={"chat_template": "old"})
    (folder / "chat_template.jinja").write_text("new")
    assert _load(folder).render_chat([]) == "new"


def test_a_folder_without_a_template_serves_no_chats(tmp_path: Path) -> None:
    with pytest.raises(ChatTemplateError, match="no chat template"):
        _load(_folder(tmp_path / "m", _byte_level())).render_chat([])


def test_a_token_beyond_the_models_rows_is_refused_where_a_text_needs_it(tmp_path: Path) -> None:
    config = {"vocab_size": 258, "max_position_embeddings": 64}
    model = _load(_folder(tmp_path / "m", _byte_level(), config=config))
    assert model.encode("ab") == [256]
    with pytest.raises(UnknownToken, match="258"):
        model.encode("<turn>")


def test_a_row_without_a_token_has_no_text(tmp_path: Path) -> None:
    config = {"vocab_size": 512, "max_position_embeddings": 64}
    model = _load(_folder(tmp_path / "m", _byte_level(), config=config))
    assert model.decode([500]) == model.token_text(500) == ""


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"config": {"vocab_size": 260}}, "max_position_embeddings is None"),
        ({"config": {"vocab_size": -1, "max_position_embeddings": 64}}, "vocab_size is -1"),
        ({"config": "{"}, r"config\.json cannot be read"),
        ({"config": []}, "holds list"),
        ({"generation_config": {"eos_token_id": 9999}}, r"eos_token_ids are \[9999\]"),
        ({"generation_config": {"eos_token_id": ["x", []]}}, "eos_token_ids"),
        ({"tokenizer": '{"model": 1}'}, r"tokenizer\.json cannot be read"),
    ],
)
def test_a_damaged_folder_is_refused_with_the_file_and_the_figure(
    tmp_path: Path, files: dict[str, Any], what: str
) -> None:
    with pytest.raises(ModelError, match=what):
        _load(_folder(tmp_path / "m", _byte_level(), **files))


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="WordPiece"):
        _load(_folder(tmp_path / "m", tokenizer, config={"vocab_size": 1, "max_position_embeddings": 64}))
