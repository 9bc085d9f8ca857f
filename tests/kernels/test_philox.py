"""The counter-based generator against the published known answers."""

import pytest

from kernels.philox import philox4x32, uniform

# Random123, tests/kat_vectors, philox 4x32 with 10 rounds: counter, key, result
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[int, ...]:
    return tuple([int(word, 16) for word in text.split()])


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_the_published_answers_are_given(counter: str, key: str, result: str) -> None:
    c0, c1, c2, c3 = words(counter)
    k0, k1 = words(key)
    assert philox4x32((c0, c1, c2, c3), (k0, k1)) == words(result)


def test_draws_lie_in_the_unit_interval_and_spread_evenly() -> None:
    draws = [uniform(seed, position) for seed in range(40) for position in range(50)]
    assert all(0.0 <= draw < 1.0 for draw in draws)
    assert len(set(draws)) == len(draws)
    tenths = [sum(int(draw * 10) == tenth for draw in draws) for tenth in range(10)]
    assert all(140 < count < 260 for count in tenths)  # 200 expected, standard deviation 13


def test_every_bit_of_seed_and_position_matters() -> None:
    seeds = {uniform(1 << bit, 0) for bit in range(64)}
    positions = {uniform(0, 1 << bit) for bit in range(33)}
    assert len(seeds) == 64
    assert len(positions) == 33


def test_negative_and_long_seeds_are_taken_by_their_lowest_64_bits() -> None:
    assert uniform(-1, 3) == uniform(2**64 - 1, 3)
    assert uniform(2**64 + 5, 3) == uniform(5, 3)
