"""Paged attention in the interpreter: right against float64, and a query's bits its own however it is computed."""

import pytest
import torch

from kernels.cuda.attention_plan import Sharing
from tests.kernels.cuda.interpreted.attention_world import SPREAD, TOGETHER, Numbers, Rows, World

CHUNKS = (Rows(0, 0, 3), Rows(0, 253, 258), Rows(1, 14, 18), Rows(0, 510, 513))  # around blocks' and splits' edges
TOLERANCE = 3e-3  # of values about 1: their weights are rounded to bfloat16, by at most 2^-9


def _equal(found: Numbers, expected: Numbers) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def together(world: World) -> Numbers:
    """What the chunks give in one step."""
    return world.attended(CHUNKS)


def test_chunks_are_what_float64_says(world: World, together: Numbers) -> None:
    for part, found in zip(CHUNKS, together, strict=True):
        assert torch.allclose(found.double(), world.exact(part), rtol=0, atol=TOLERANCE)


def test_a_decoded_row_has_the_bits_of_a_prefilled_one(world: World, together: Numbers) -> None:
    part, prefilled = CHUNKS[1], together[1]
    positions = (253, 255, 256)
    decoded = world.attended([Rows(0, position, position + 1) for position in positions])
    assert all(torch.equal(row[0], prefilled[p - part.begin]) for row, p in zip(decoded, positions, strict=True))


def test_chunks_of_any_cut_have_the_bits_of_one(world: World, together: Numbers) -> None:
    pieces = [Rows(0, 253, 255), Rows(0, 255, 257), Rows(0, 257, 258)]
    assert torch.equal(torch.cat(world.attended(pieces)), together[1])


def test_splits_spread_over_programs_give_the_bits_of_one(world: World, together: Numbers) -> None:
    arrays = world.plan(CHUNKS, SPREAD)
    assert arrays.counts[1] > 0
    assert _equal(world.attended(CHUNKS, SPREAD), together)


def test_a_sequence_alone_has_the_bits_it_has_in_company(world: World, together: Numbers) -> None:
    for index in (1, 2):
        assert torch.equal(world.attended([CHUNKS[index]])[0], together[index])


@pytest.mark.parametrize("sharing", [TOGETHER, SPREAD], ids=["together", "spread"])
@pytest.mark.parametrize("window", [0, 20])
def test_wide_tiles_give_the_bits_of_narrow_ones(sharing: Sharing, window: int) -> None:
    world = World(window=window)
    chunks = [Rows(0, 253, 267), Rows(1, 14, 16), Rows(0, 505, 513)]  # two wide tiles, a narrow one, a wide one
    arrays = world.plan(chunks, sharing, has_wide=True)
    assert arrays.counts[0] > 0
    assert arrays.counts[2] > 0
    assert _equal(world.run(chunks, arrays, sharing), world.attended(chunks, sharing))


def test_which_blocks_hold_the_keys_changes_nothing(together: Numbers) -> None:
    assert _equal(World(seed=2).attended(CHUNKS[2:]), together[2:])


def test_padding_rows_are_left_alone(world: World, together: Numbers) -> None:
    *found, padding = world.attended(CHUNKS[:3], padding=3)
    assert _equal(found, together[:3])
    assert bool(padding.isnan().all())


@pytest.mark.parametrize("sharing", [TOGETHER, SPREAD], ids=["together", "spread"])
def test_a_window_hides_earlier_keys(sharing: Sharing) -> None:
    world = World(window=20)
    chunks = [Rows(0, 0, 3), Rows(0, 272, 277), Rows(0, 515, 517)]
    found = world.attended(chunks, sharing)
    for part, of_chunk in zip(chunks, found, strict=True):
        assert torch.allclose(of_chunk.double(), world.exact(part), rtol=0, atol=TOLERANCE)
    alone = world.attended([Rows(0, 275, 276)])[0]
    assert torch.equal(alone[0], found[1][275 - 272])


def test_e4m3_memory_is_read_for_what_it_holds() -> None:
    world = World(kind=torch.uint8)
    chunks = [Rows(0, 255, 257)]
    found = world.attended(chunks)
    for part, of_chunk in zip(chunks, found, strict=True):
        assert torch.allclose(of_chunk.double(), world.exact(part), rtol=0, atol=TOLERANCE)
    assert _equal(world.attended(chunks, SPREAD), found)


class TestMistakesAreNoticed:
    """The tests above would fail if the kernels did otherwise: what each would see, done on purpose."""

    def test_partial_results_merged_backwards_give_other_bits(self, world: World, together: Numbers) -> None:
        chunk = CHUNKS[3:]  # of three splits: two give the same sum either way
        arrays = world.plan(chunk, SPREAD)
        _, first, step, count = arrays.merges.T
        first += (count - 1) * step
        step *= -1
        found = world.run(chunk, arrays, SPREAD)[0]
        assert not torch.equal(found, together[3])
        assert torch.allclose(found, together[3], rtol=0, atol=1e-5)

    def test_a_wrong_block_is_far_from_float64(self, world: World) -> None:
        chunk = CHUNKS[2:3]
        arrays = world.plan(chunk, TOGETHER)
        arrays.block_tables[:, [0, 1]] = arrays.block_tables[:, [1, 0]]
        found = world.run(chunk, arrays, TOGETHER)[0].double()
        assert not torch.allclose(found, world.exact(chunk[0]), rtol=0, atol=TOLERANCE)

    def test_a_split_left_out_is_far_from_float64(self, world: World) -> None:
        chunk = CHUNKS[3:]
        arrays = world.plan(chunk, TOGETHER)
        arrays.items[:, 6] = 1
        found = world.run(chunk, arrays, TOGETHER)[0].double()
        assert not torch.allclose(found, world.exact(chunk[0]), rtol=0, atol=TOLERANCE)
