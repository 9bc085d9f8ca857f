"""GGUF metadata → a vocabulary: which tokens are special, which end an answer, what bytes each stands for."""

from enum import IntEnum
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from engine.core.errors import ModelError
from engine.text.gguf_metadata import GGUFMetadata, read_gguf_metadata
from engine.text.gguf_tokenizer import byte_level_tokenizer, sentencepiece_tokenizer, word_rule
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


def gguf_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary in the file's metadata. Raises ModelError where it is missing, damaged or of an unknown kind."""
    metadata = read_gguf_metadata(path)
    tokens = metadata.strings("tokenizer.ggml.tokens")
    types = _token_types(metadata, len(tokens))
    kind = metadata.string("tokenizer.ggml.model")
    if kind == "gpt2":
        rule = word_rule(metadata)
        tokenizer = byte_level_tokenizer(metadata, tokens, rule)
        token_bytes = [byte_level_bytes(token) for token in tokens]
        return _vocabulary(metadata, tokens, types, tokenizer, token_bytes, adds_bos=rule.adds_bos, adds_space=False)
    if kind == "llama":
        adds_space = metadata.flag("tokenizer.ggml.add_space_prefix", True)
        is_normal = [number == TokenType.NORMAL for number in types]
        unknown = next((tokens[number] for number, t in enumerate(types) if t == TokenType.UNKNOWN), None)
        tokenizer = sentencepiece_tokenizer(metadata, tokens, is_normal, unknown, adds_space)
        token_bytes = [sentencepiece_bytes(token) for token in tokens]
        return _vocabulary(metadata, tokens, types, tokenizer, token_bytes, adds_bos=True, adds_space=adds_space)
    raise ModelError(f"{path} has a tokenizer of the kind {kind!r}; 'gpt2' (byte-level) and 'llama' can be served")


def _token_types(metadata: GGUFMetadata, num_tokens: int) -> list[int]:
    key = "tokenizer.ggml.token_type"
    types = metadata.integers(key) if key in metadata else [TokenType.NORMAL.value] * num_tokens
    if not num_tokens or len(types) != num_tokens:
        raise ModelError(f"{metadata.path} has {num_tokens} tokens and {len(types)} token types: convert it again")
    return types


def _vocabulary(
    metadata: GGUFMetadata,
    tokens: list[str],
    types: list[int],
    tokenizer: Tokenizer,
    token_bytes: list[bytes],
    *,
    adds_bos: bool,
    adds_space: bool,
) -> Vocabulary:
    special_ids = [number for number, kind in enumerate(types) if kind in (TokenType.CONTROL, TokenType.UNKNOWN)]
    user_ids = [number for number, kind in enumerate(types) if kind == TokenType.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(tokens[number], special=True, normalized=False) for number in special_ids])
    tokenizer.add_tokens([AddedToken(tokens[number], normalized=False) for number in user_ids])
    for number in (*special_ids, *user_ids):  # these are written as they are
        token_bytes[number] = tokens[number].encode()
    bos_id, eos_id = _token_id(metadata, "bos", len(tokens)), _token_id(metadata, "eos", len(tokens))
    named = {name: _token_id(metadata, key, len(tokens)) for key, name in _TEMPLATE_NAMES.items()}
    adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", adds_bos) and bos_id is not None
    adds_eos = metadata.flag("tokenizer.ggml.add_eos_token", False) and eos_id is not None
    return Vocabulary(
        tokenizer=tokenizer,
        token_bytes=tuple(token_bytes),
        special_ids=frozenset(special_ids),
        strips_leading_space=adds_space,
        eos_token_ids=_eos_token_ids(metadata, tokens, special_ids),
        context_length=_context_length(metadata),
        chat_template=metadata.string("tokenizer.chat_template", "") or None,
        prefix_ids=(bos_id,) if adds_bos and bos_id is not None else (),
        suffix_ids=(eos_id,) if adds_eos and eos_id is not None else (),
        template_tokens={name: tokens[number] for name, number in named.items() if number is not None},
    )


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
