"""Tokens in the place of those that nobody may see, or has: they follow from a key and a seed, equal where both are."""

import hashlib

FIRST_TOKEN, NUM_TOKENS = 3, 900  # of ids that every vocabulary has and that end no text


def synthetic_tokens(key: bytes, seed: bytes, num_tokens: int) -> tuple[int, ...]:
    draws = hashlib.shake_256(key + seed).digest(2 * num_tokens)
    return tuple(
        [FIRST_TOKEN + int.from_bytes(draws[i : i + 2], "little") % NUM_TOKENS for i in range(0, len(draws), 2)]
    )
