"""Keyed, chained digests of full KV blocks: the names under which the prefix index knows their contents.

A block's digest covers its tokens and everything before them, so equal digests mean equal KV contents. The key is the
recording's salt: digests of two recordings cannot be compared, and tokens cannot be guessed from a recording alone.
"""

import hashlib
import struct
from collections.abc import Sequence

DIGEST_BYTES = 16


def next_digest(key: bytes, previous: bytes, token_ids: Sequence[int]) -> bytes:
    """The digest of a block that holds `token_ids` and follows the block with digest `previous` (b"" for the first)."""
    packed = struct.pack(f"<{len(token_ids)}I", *token_ids)
    return hashlib.blake2b(previous + packed, key=key, digest_size=DIGEST_BYTES).digest()


def chain_digests(key: bytes, token_ids: Sequence[int], block_size: int) -> list[bytes]:
    """The digests of all full blocks of `token_ids`, in order."""
    digests: list[bytes] = []
    previous = b""
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        previous = next_digest(key, previous, token_ids[start : start + block_size])
        digests.append(previous)
    return digests
