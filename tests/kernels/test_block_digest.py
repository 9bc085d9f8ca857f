"""A KV block's digest: one number for equal bits on every instruction set and in numpy, another for any change."""

from dataclasses import replace

import numpy as np
import pytest

from kernels import memory
from kernels.backend import KVPair
from kernels.block_digest import digest_blocks
from tests.kernels.cpu_library import instruction_sets, loaded
from tests.kernels.tiny_models import SMALL, random_parameters

NUM_BLOCKS = 6
BLOCK_SIZE = 16


def filled(shape: tuple[int, ...], dtype: type[np.generic] = np.uint16, seed: int = 0) -> KVPair:
    random = np.random.default_rng(seed)
    keys, values = (memory.zeros(shape, dtype) for _ in range(2))
    for part in (keys, values):
        part.view(np.uint8)[...] = random.integers(0, 256, part.view(np.uint8).shape, dtype=np.uint8)
    return keys, values


@pytest.mark.parametrize("head_dim", [16, 64, 80])
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_every_instruction_set_and_numpy_agree(head_dim: int, block_size: int) -> None:
    shape = replace(SMALL, head_dim=head_dim, num_heads=4, num_kv_heads=2, num_layers=3)
    parameters = random_parameters("Q8_0", shape)
    blocks = [4, 0, 4, 2]
    for dtype in ("bfloat16", "float32"):
        for name in instruction_sets():
            backend = loaded(parameters, dtype=dtype, instruction_set=name, max_positions=64)
            pool = filled(backend.kv_shape(NUM_BLOCKS, block_size), backend.kv_dtype.type)
            assert backend.digest_blocks(pool, blocks) == digest_blocks(*pool, blocks)
            host = tuple(part.swapaxes(0, 1).copy().swapaxes(0, 1) for part in pool)  # block by block in memory
            assert backend.digest_blocks((host[0], host[1]), blocks) == digest_blocks(*pool, blocks)
            assert backend.digest_blocks(pool, []) == []
            backend.close()


def test_a_change_of_any_bit_is_another_digest() -> None:
    keys, values = filled((2, 1, 1, 2, 8))
    digests = {digest_blocks(keys, values, [0])[0]}
    for part in (keys, values):
        bits = part.view(np.uint8).reshape(-1)
        for place in range(bits.size):
            for bit in range(8):
                bits[place] ^= 1 << bit
                digests.add(digest_blocks(keys, values, [0])[0])
                bits[place] ^= 1 << bit
    assert len(digests) == 1 + 2 * 8 * keys.nbytes


def test_rows_that_have_changed_places_are_noticed() -> None:
    keys, values = filled((3, 1, 2, 16, 8))
    original = digest_blocks(keys, values, [0])
    for part in (keys, values):
        for first, second in ((0, 1), (3, 12)):
            part[:, 0, :, [first, second]] = part[:, 0, :, [second, first]]
            assert digest_blocks(keys, values, [0]) != original
            part[:, 0, :, [first, second]] = part[:, 0, :, [second, first]]
    assert digest_blocks(keys, values, [0]) == original
    assert digest_blocks(values, keys, [0]) != original
    assert digest_blocks(keys[::-1], values[::-1], [0]) != original


def test_the_number_is_the_same_for_ever() -> None:
    """Recordings hold it: another formula would make every recorded digest differ."""
    keys = np.arange(64, dtype=np.uint16).reshape(2, 1, 1, 4, 8)
    assert digest_blocks(keys, keys + np.uint16(1000), [0]) == [13146029284284657378]
