"""KV blocks and slots on the device: digested, copied, swapped, read and written as the host's kernels say."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels import memory
from kernels.block_digest import digest_blocks as digest_on_host
from kernels.cuda.block_copy import _cross, copy_blocks
from kernels.cuda.block_digest import digest_blocks
from kernels.cuda.slots import read_slots, write_slots
from kernels.slots import plain_places, read

LAYERS, BLOCKS = 3, 6
KINDS = pytest.mark.parametrize("kind", [torch.bfloat16, torch.uint8], ids=["bf16", "e4m3"])
Pair = tuple[torch.Tensor, torch.Tensor]


def _memory(seed: int, kind: torch.dtype = torch.bfloat16, blocks: int = BLOCKS) -> Pair:
    """Of 2 kv heads, 16 slots, 40 dimensions: a block of a layer is no whole number of a program's words."""
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYERS, blocks, 2, 16, 40 * kind.itemsize)
    keys, values = (torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8) for _ in range(2))
    return keys.view(kind), values.view(kind)


def _bits(pair: Pair) -> tuple[NDArray[Any], NDArray[Any]]:
    kinds = {torch.bfloat16: torch.int16, torch.uint8: torch.uint8}
    keys, values = (part.view(kinds[part.dtype]).numpy() for part in pair)
    return keys, values


@KINDS
def test_a_block_has_the_digest_that_the_host_gives_it(kind: torch.dtype) -> None:
    pair = _memory(1, kind)
    assert digest_blocks(*pair, [4, 0, 4]) == digest_on_host(*_bits(pair), [4, 0, 4])
    assert digest_blocks(*pair, []) == []
    keys, values = (part.transpose(0, 1).contiguous().transpose(0, 1) for part in pair)  # as the host pool lies
    assert digest_blocks(keys, values, [3]) == digest_blocks(*pair, [3])


def test_one_bit_changes_the_digest_of_its_block_alone() -> None:
    pair = _memory(1)
    before = digest_blocks(*pair, range(BLOCKS))
    pair[1].view(torch.int16)[2, 3, 1, 15, 39] ^= 1
    after = digest_blocks(*pair, range(BLOCKS))
    assert [block for block in range(BLOCKS) if before[block] != after[block]] == [3]


def test_blocks_are_copied_in_order_as_the_host_copies_them() -> None:
    pair = _memory(1)
    expected = [part.copy() for part in _bits(pair)]
    sources, targets = [0, 1, 2, 5], [1, 2, 5, 0]  # each reads what the one before it wrote
    copy_blocks(pair, pair, sources, targets)
    for part, found in zip(expected, _bits(pair), strict=True):
        memory.copy_blocks(part, part, sources, targets)
        assert np.array_equal(part, found)


@KINDS
def test_blocks_swapped_out_and_in_again_are_themselves(kind: torch.dtype) -> None:
    pair, other = _memory(1, kind), _memory(2, kind)
    host = [part.new_zeros(4, LAYERS, *part.shape[2:]).transpose(0, 1) for part in pair]  # block by block in memory
    for device_part, host_part, target in zip(pair, host, other, strict=True):
        _cross(device_part, host_part, [5, 2], [0, 3])
        assert torch.equal(_raw(host_part[:, [0, 3]]), _raw(device_part[:, [5, 2]]))
        assert not _raw(host_part[:, [1, 2]]).any()
        _cross(host_part, target, [3, 0], [1, 4])
        assert torch.equal(_raw(target[:, [4, 1]]), _raw(device_part[:, [5, 2]]))


def _raw(part: torch.Tensor) -> torch.Tensor:
    return part.contiguous().view(torch.uint8)


@KINDS
def test_slots_are_read_as_the_host_reads_them_and_written_back(kind: torch.dtype) -> None:
    pair, slots = _memory(1, kind), np.array([17, 0, 95])
    rows = read_slots(pair, slots)
    keys, values = _bits(pair)
    expected = read((plain_places(keys, slots), plain_places(values, slots)))
    assert np.array_equal(rows, expected.view(rows.dtype))
    other = _memory(2, kind)
    write_slots(other, slots, rows)
    assert np.array_equal(read_slots(other, slots), rows)
    untouched = np.setdiff1d(np.arange(BLOCKS * 16), slots)
    assert np.array_equal(read_slots(other, untouched), read_slots(_memory(2, kind), untouched))
