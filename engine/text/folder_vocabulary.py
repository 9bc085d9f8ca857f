"""A Hugging Face folder → a vocabulary: tokenizer.json as it is, and what the files beside it say about it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.errors import ModelError
from engine.text.model_source import TOOL_TEMPLATE
from engine.text.token_bytes import SpelledBytes, byte_level_bytes, sentencepiece_bytes
from engine.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TEMPLATE_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def folder_vocabulary(folder: Path, *, encodes: bool = True) -> Vocabulary:
    """The vocabulary of the folder; its tokenizer is left out where nothing will be encoded.

    Raises ModelError where a file is missing, unreadable or of an unknown kind.
    """
    config = _json(folder / "config.json")
    settings = _json(folder / "tokenizer_config.json", optional=True)
    tokenizer = _tokenizer(folder)
    vocab_size = _count(folder, config, "vocab_size")
    spelled_bytes, strips_space = _spelling(folder, tokenizer)
    token_bytes = [b""] * vocab_size
    for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
        if number < vocab_size:  # fine-tunes are about whose tokenizer has a token more than the model has rows
            token_bytes[number] = spelled_bytes(token)
    added = {number: token for number, token in tokenizer.get_added_tokens_decoder().items() if number < vocab_size}
    for number, added_token in added.items():
        token_bytes[number] = added_token.content.encode()
    template_tokens = _template_tokens(folder, settings)
    return Vocabulary(
        tokenizer=tokenizer if encodes else None,
        token_bytes=tuple(token_bytes),
        special_ids=frozenset(number for number, token in added.items() if token.special),
        strips_leading_space=strips_space,
        eos_token_ids=_eos_token_ids(folder, config, tokenizer, template_tokens.get("eos_token"), vocab_size),
        context_length=_count(folder, config, "max_position_embeddings"),
        chat_template=_chat_template(folder, settings),
        tool_template=_tool_template(folder, settings),
        template_tokens=template_tokens,
    )


def _json(path: Path, optional: bool = False) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        if optional:
            return {}
        raise ModelError(f"{path} is missing: give a complete Hugging Face folder") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds {type(content).__name__}, not an object: fetch the model again")
    return content


def _count(folder: Path, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or not 1 <= value <= 2**31:
        raise ModelError(f"{folder / 'config.json'}: {key} is {value!r}; a positive integer is needed")
    return value


def _tokenizer(folder: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{path} is missing: save the model's tokenizer in the fast format, as tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise ModelError(f"{path} cannot be read: {error}") from error
    tokenizer.no_truncation()  # settings of training: they would cut prompts silently
    tokenizer.no_padding()
    return tokenizer


def _spelling(folder: Path, tokenizer: "Tokenizer") -> tuple[SpelledBytes, bool]:
    """How tokens are spelled, and whether decoding takes a leading space away: both as the decoder says."""
    decoder = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder is not None else {}
    steps = decoder.get("decoders", [decoder])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return byte_level_bytes, False
    if kinds & {"ByteFallback", "Metaspace"}:
        strips = any(step.get("type") == "Strip" and step.get("start", 0) > 0 for step in steps)
        prepends = any(step.get("type") == "Metaspace" and step.get("prepend_scheme") != "never" for step in steps)
        return sentencepiece_bytes, strips or prepends
    raise ModelError(
        f"{folder / 'tokenizer.json'} decodes by {sorted(map(str, kinds))}; "
        "byte-level and SentencePiece tokenizers can be served"
    )


def _template_tokens(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    found = {**_json(folder / "special_tokens_map.json", optional=True), **settings}
    texts = {name: found.get(name) for name in _TEMPLATE_TOKENS}
    texts = {name: text.get("content") if isinstance(text, dict) else text for name, text in texts.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _eos_token_ids(
    folder: Path, config: dict[str, Any], tokenizer: "Tokenizer", eos_token: str | None, vocab_size: int
) -> tuple[int, ...]:
    generation = _json(folder / "generation_config.json", optional=True)
    named = generation.get("eos_token_id", config.get("eos_token_id"))
    ids = list(named) if isinstance(named, list) else [] if named is None else [named]
    if eos_token is not None and (number := tokenizer.token_to_id(eos_token)) is not None:
        ids.append(number)
    if not all(type(number) is int and 0 <= number < vocab_size for number in ids):
        raise ModelError(f"{folder}: the eos_token_ids are {ids!r}; ids from 0 to {vocab_size - 1} are needed")
    return tuple(sorted(set(ids)))


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The file chat_template.jinja, else the setting; of several named templates the one named "default"."""
    return _template_file(folder / "chat_template.jinja") or _named_template(settings, "default")


def _tool_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The one that is named "tool_use", where there are several."""
    return _template_file(folder / TOOL_TEMPLATE) or _named_template(settings, "tool_use")


def _template_file(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def _named_template(settings: dict[str, Any], name: str) -> str | None:
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = [item for item in template if isinstance(item, dict) and item.get("name") == name]
        template = named[0].get("template") if named else None
    elif name != "default":
        return None
    return template if isinstance(template, str) else None
