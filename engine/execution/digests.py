"""Keyed digests of full blocks: what the core and a recording know instead of tokens.

A block's digest covers all tokens before it as well (it chains from the block before), so equal digests mean equal
prefixes. The key is the recording's salt: without it, nobody can test a guessed prompt against a recording.
"""

import hashlib
import struct
from collections.abc import Sequence

DIGEST_BYTES = 16


def block_digest(previous: bytes, token_ids: Sequence[int], key: bytes) -> bytes:
    """blake2b(previous + token ids as u32 little-endian), keyed; `previous` is empty for the first block."""
    packed = struct.pack(f"<{len(token_ids)}I", *token_ids)
    return hashlib.blake2b(previous + packed, key=key, digest_size=DIGEST_BYTES).digest()


def grammar_digest(grammar: str, key: bytes) -> bytes:
    """Keyed digest of what an answer must follow; empty where it may read anything."""
    return hashlib.blake2b(grammar.encode(), key=key, digest_size=DIGEST_BYTES).digest() if grammar else b""


def extend_digests(
    digests: list[bytes], token_ids: Sequence[int], num_blocks: int, block_size: int, key: bytes
) -> None:
    """Append to `digests` until it holds those of the first `num_blocks` blocks of `token_ids`."""
    while len(digests) < num_blocks:
        start = len(digests) * block_size
        previous = digests[-1] if digests else b""
        digests.append(block_digest(previous, token_ids[start : start + block_size], key))
