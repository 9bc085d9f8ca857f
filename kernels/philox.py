"""A counter-based generator: the draw for a seed and a position, without any state between draws.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox4x32-10).
"""

_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF
_NUM_ROUNDS = 10


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four random 32-bit words for a 128-bit counter and a 64-bit key, least significant words first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_NUM_ROUNDS):
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> 32) ^ c1 ^ k0,
            product_1 & _WORD,
            (product_0 >> 32) ^ c3 ^ k1,
            product_0 & _WORD,
        )
        k0, k1 = (k0 + _WEYL_0) & _WORD, (k1 + _WEYL_1) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """The draw in [0, 1) of a request's output token number `position`, 53 random bits.

    seed   any integer; its lowest 64 bits are the key
    """
    counter = (position & _WORD, position >> 32 & _WORD, 0, 0)
    word_0, word_1, _, _ = philox4x32(counter, (seed & _WORD, seed >> 32 & _WORD))
    return ((word_0 >> 5) * 67_108_864 + (word_1 >> 6)) / 9_007_199_254_740_992
