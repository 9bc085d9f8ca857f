"""The pool and its prefix index by themselves: what is found, kept, given up, and in which order."""

import pytest

from engine.core.kv_cache import BlockPool


def digest(number: int) -> bytes:
    return b"digest-%09d" % number


def pool_with(num_blocks: int, *numbers: int, enable_prefix_caching: bool = True) -> BlockPool:
    """Blocks 0, 1, … held by somebody and indexed as digest(number) in that order."""
    pool = BlockPool(num_blocks, enable_prefix_caching=enable_prefix_caching)
    blocks, _evicted = pool.allocate(len(numbers))
    for block, number in zip(blocks, numbers, strict=True):
        pool.index(block, digest(number))
    return pool


def test_a_prefix_ends_at_the_first_block_that_is_not_there() -> None:
    pool = pool_with(4, 0, 2)
    assert pool.find_prefix([digest(0), digest(1), digest(2)], 3) == [0]
    assert pool.find_prefix([digest(1), digest(2)], 2) == []
    assert pool.find_prefix([digest(0), digest(2)], 1) == [0]


def test_the_first_block_with_some_contents_stays_the_one_that_is_found() -> None:
    pool = pool_with(4, 7, 7)
    assert pool.find_prefix([digest(7)], 1) == [0]
    pool.release([0])
    pool.allocate(3)  # the last of these is block 0
    assert pool.find_prefix([digest(7)], 1) == [], "the copy was never in the index"
    pool.check_invariants()


def test_a_block_keeps_the_contents_it_was_indexed_with() -> None:
    pool = pool_with(2, 1)
    pool.index(0, digest(2))
    assert pool.find_prefix([digest(1)], 1) == [0]
    assert pool.find_prefix([digest(2)], 1) == []


def test_what_follows_a_prefix_is_evicted_before_it() -> None:
    pool = pool_with(3, 0, 1, 2)
    pool.release([0, 1, 2])
    assert pool.allocate(1) == ([2], [2])
    assert pool.find_prefix([digest(0), digest(1), digest(2)], 3) == [0, 1]


def test_blocks_without_contents_are_taken_before_cached_ones() -> None:
    pool = pool_with(3, 0)
    pool.release([0])
    assert pool.allocate(2) == ([1, 2], [])
    assert pool.allocate(1) == ([0], [0])
    pool.check_invariants()


def test_a_block_found_again_is_evictable_no_more_until_all_holders_gave_it_up() -> None:
    pool = pool_with(2, 0)
    pool.release([0])
    assert pool.num_evictable_among([0, 1]) == 2, "nobody holds the other one either"
    pool.hold([0])
    pool.hold([0])
    assert (pool.num_evictable_among([0]), pool.num_exclusive([0]), pool.num_free) == (0, 0, 1)
    assert pool.release([0]) == 0
    assert pool.num_exclusive([0]) == 1
    assert pool.release([0]) == 1
    assert pool.num_free == 2
    pool.check_invariants()


def test_nothing_is_found_with_caching_off() -> None:
    pool = pool_with(2, 0, enable_prefix_caching=False)
    assert pool.find_prefix([digest(0)], 1) == []


def test_a_block_released_twice_is_a_mistake_of_ours() -> None:
    pool = pool_with(2, 0)
    pool.release([0])
    with pytest.raises(AssertionError, match="released twice"):
        pool.release([0])
