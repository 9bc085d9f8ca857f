"""Small GGUF files, written with the `gguf` package: vocabularies without a model."""

from pathlib import Path
from typing import Any

from gguf import GGUFWriter

from engine.text.token_bytes import byte_level_alphabet

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

SPM_WORDS = ["▁h", "el", "lo", "▁hel", "▁hello", "hell", "▁w", "or", "ld", "▁wor", "▁world", "aa", "aaa", "▁▁", "é"]
SPM_CHARACTERS = "▁helowrda"
SPM_PIECES = [
    ("<unk>", UNKNOWN, 0.0),
    ("<s>", CONTROL, 0.0),
    ("</s>", CONTROL, 0.0),
    *[(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)],
    *[(word, NORMAL, -float(rank)) for rank, word in enumerate(SPM_WORDS)],
    *[(character, NORMAL, -100.0 - rank) for rank, character in enumerate(SPM_CHARACTERS)],
    ("[INST]", USER_DEFINED, 0.0),
]


def write_gguf(path: Path, tokens: list[str], types: list[int], model: str, **settings: Any) -> Path:
    """`settings` by the rest of their key, "__" for "." — pre, merges, scores, bos_token_id, add_bos_token …"""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for name, value in settings.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_byte_level(
    path: Path, pre: str, merges: tuple[str, ...] = (), words: tuple[str, ...] = (), **settings: Any
) -> Path:
    """<s>, </s>, all 256 bytes, the unions of `merges`, then `words` that no merge makes."""
    merged = [line.replace(" ", "") for line in merges]
    tokens = ["<s>", "</s>", *byte_level_alphabet(), *merged, *words]
    types = [CONTROL, CONTROL] + [NORMAL] * (len(tokens) - 2)
    # the writer cannot write an empty array, so one merge always stands there
    lines = list(merges) or ["Ā Ā"]
    if not merges:
        tokens, types = [*tokens, "ĀĀ"], [*types, NORMAL]
    return write_gguf(path, tokens, types, "gpt2", pre=pre, merges=lines, bos_token_id=0, eos_token_id=1, **settings)


def write_sentencepiece(path: Path, **settings: Any) -> Path:
    pieces, types, scores = zip(*SPM_PIECES, strict=True)
    settings = {"scores": list(scores), "bos_token_id": 1, "eos_token_id": 2} | settings
    return write_gguf(path, list(pieces), list(types), "llama", **settings)
