"""GGUF metadata → a vocabulary: which tokens are special, which end an answer, what bytes each stands for."""

from dataclasses import replace
from enum import IntEnum
from pathlib import Path

from engine.core.errors import ModelError
from engine.text.gguf_metadata import GGUFMetadata, read_gguf_metadata
from engine.text.token_bytes import byte_level_bytes, sentencepiece_bytes
from engine.text.vocabulary import Vocabulary


class TokenType(IntEnum):
    """The numbers in `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Control tokens that end an answer whether or not the file says so: many files name only one of a model's ends.
# Source: llama.cpp, end-of-generation tokens of llama-vocab.cpp, for the architectures served here.
END_TOKENS = frozenset(
    ["<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "</s>"]
)

_TEMPLATE_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


_ENCODING_ONLY = ("tokenizer.ggml.merges", "tokenizer.ggml.scores")


def gguf_vocabulary(path: Path, *, encodes: bool = True) -> Vocabulary:
    """The vocabulary in the file's metadata; its tokenizer is left out where nothing will be encoded.

    Raises ModelError where it is missing, damaged or of an unknown kind.
    """
    metadata = read_gguf_metadata(path, leave_out=() if encodes else _ENCODING_ONLY)
    tokens = metadata.strings("tokenizer.ggml.tokens")
    types = _token_types(metadata, len(tokens))
    kind = metadata.string("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise ModelError(f"{path} has a tokenizer of the kind {kind!r}; 'gpt2' (byte-level) and 'llama' can be served")
    adds_space = kind == "llama" and metadata.flag("tokenizer.ggml.add_space_prefix", True)
    bytes_of = byte_level_bytes if kind == "gpt2" else sentencepiece_bytes
    vocabulary = _decoding(metadata, tokens, types, [bytes_of(token) for token in tokens], adds_space)
    return _with_tokenizer(vocabulary, metadata, tokens, types, kind) if encodes else vocabulary


def _token_types(metadata: GGUFMetadata, num_tokens: int) -> list[int]:
    key = "tokenizer.ggml.token_type"
    types = metadata.integers(key) if key in metadata else [TokenType.NORMAL.value] * num_tokens
    if not num_tokens or len(types) != num_tokens:
        raise ModelError(f"{metadata.path} has {num_tokens} tokens and {len(types)} token types: convert it again")
    return types


def _decoding(
    metadata: GGUFMetadata, tokens: list[str], types: list[int], token_bytes: list[bytes], adds_space: bool
) -> Vocabulary:
    """All but how text becomes tokens."""
    special_ids = _of_type(types, TokenType.CONTROL, TokenType.UNKNOWN)
    for number in (*special_ids, *_of_type(types, TokenType.USER_DEFINED)):  # these are written as they are
        token_bytes[number] = tokens[number].encode()
    named = {name: _token_id(metadata, key, len(tokens)) for key, name in _TEMPLATE_NAMES.items()}
    return Vocabulary(
        tokenizer=None,
        token_bytes=tuple(token_bytes),
        special_ids=frozenset(special_ids),
        strips_leading_space=adds_space,
        eos_token_ids=_eos_token_ids(metadata, tokens, special_ids),
        context_length=_context_length(metadata),
        chat_template=metadata.string("tokenizer.chat_template", "") or None,
        tool_template=metadata.string("tokenizer.chat_template.tool_use", "") or None,
        template_tokens={name: tokens[number] for name, number in named.items() if number is not None},
    )


def _with_tokenizer(
    vocabulary: Vocabulary, metadata: GGUFMetadata, tokens: list[str], types: list[int], kind: str
) -> Vocabulary:
    from tokenizers import AddedToken

    from engine.text.gguf_tokenizer import byte_level_tokenizer, sentencepiece_tokenizer, word_rule

    if kind == "gpt2":
        rule = word_rule(metadata)
        tokenizer, adds_bos = byte_level_tokenizer(metadata, tokens, rule), rule.adds_bos
    else:
        is_normal = [number == TokenType.NORMAL for number in types]
        unknown = next((tokens[number] for number in _of_type(types, TokenType.UNKNOWN)), None)
        tokenizer = sentencepiece_tokenizer(metadata, tokens, is_normal, unknown, vocabulary.strips_leading_space)
        adds_bos = True
    special = _of_type(types, TokenType.CONTROL, TokenType.UNKNOWN)
    tokenizer.add_special_tokens([AddedToken(tokens[number], special=True, normalized=False) for number in special])
    own = _of_type(types, TokenType.USER_DEFINED)
    tokenizer.add_tokens([AddedToken(tokens[number], normalized=False) for number in own])
    return replace(
        vocabulary,
        tokenizer=tokenizer,
        prefix_ids=_around(metadata, "bos", len(tokens), adds_bos),
        suffix_ids=_around(metadata, "eos", len(tokens), False),
    )


def _of_type(types: list[int], *wanted: TokenType) -> list[int]:
    return [number for number, kind in enumerate(types) if kind in wanted]


def _around(metadata: GGUFMetadata, name: str, num_tokens: int, by_default: bool) -> tuple[int, ...]:
    """The bos or eos token, where the file, or else the tokenizer's kind, puts it around a text."""
    number = _token_id(metadata, name, num_tokens)
    is_added = metadata.flag(f"tokenizer.ggml.add_{name}_token", by_default)
    return (number,) if is_added and number is not None else ()


def _token_id(metadata: GGUFMetadata, name: str, num_tokens: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in metadata:
        return None
    number = metadata.integer(key)
    if not 0 <= number < num_tokens:
        raise ModelError(f"{metadata.path}: {key} is {number}, and there are {num_tokens} tokens: convert it again")
    return number


def _eos_token_ids(metadata: GGUFMetadata, tokens: list[str], special_ids: list[int]) -> tuple[int, ...]:
    named = [_token_id(metadata, name, len(tokens)) for name in ("eos", "eot", "eom")]
    ends = [number for number in special_ids if tokens[number] in END_TOKENS]
    return tuple(sorted({number for number in named if number is not None} | set(ends)))


def _context_length(metadata: GGUFMetadata) -> int:
    key = f"{metadata.string('general.architecture')}.context_length"
    length = metadata.integer(key)
    if length < 1:
        raise ModelError(f"{metadata.path}: {key} is {length}, a context has at least 1 token: convert it again")
    return length
