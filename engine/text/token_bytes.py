"""How a token is written in a vocabulary → the bytes it stands for. Two spellings are in use.

Byte-level (GPT-2 and after): each of the 256 bytes has a printable character of its own.
SentencePiece: text as it is, "▁" for a space, "<0xE2>" for a single byte.
"""

import re
from collections.abc import Callable

SpelledBytes = Callable[[str], bytes]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; one with a character outside that alphabet stands for itself."""
    try:
        return token.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a SentencePiece token."""
    if token.startswith("<0x") and (single := _BYTE_TOKEN.fullmatch(token)):
        return bytes([int(single[1], 16)])
    return token.replace("▁", " ").encode()


def byte_level_alphabet() -> list[str]:
    """Character of each byte: itself where it prints, else the next free one from U+0100 on (Radford et al., 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + n) for n, byte in enumerate(others)}
    return [alphabet[byte] for byte in range(256)]


_ALPHABET = byte_level_alphabet()
_OUTSIDE = chr(0x10FFFF)  # cannot be encoded in latin-1, so such a token stands for itself
_TO_LATIN_1 = dict.fromkeys(range(256), _OUTSIDE) | {ord(char): chr(byte) for byte, char in enumerate(_ALPHABET)}
