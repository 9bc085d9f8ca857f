"""Matrices of every format, of arbitrary stored numbers and scales as models have them."""

import numpy as np

from kernels.stored_tensor import StoredTensor, row_bytes

_HALVES = {  # where a block's float16 figures lie
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
_BLOCK_LENGTH = {"Q4_K": 256, "Q5_K": 256, "Q6_K": 256}


def stored_matrix(
    format: str, num_outputs: int, num_inputs: int, seed: int = 0, shuffled: bool = False
) -> StoredTensor:
    """`shuffled`: its rows lie in another order than they are meant in."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(num_outputs) if shuffled else None
    return StoredTensor(format, (num_outputs, num_inputs), _rows(format, num_outputs, num_inputs, draw), order)


def _rows(format: str, num_outputs: int, num_inputs: int, draw: np.random.Generator) -> np.ndarray:
    numbers = draw.standard_normal((num_outputs, num_inputs)).astype(np.float32)
    if format == "F32":
        return numbers.view(np.uint8)
    if format == "F16":
        return numbers.astype(np.float16).view(np.uint8)
    if format == "BF16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    length = row_bytes(format, num_inputs)
    block = row_bytes(format, _BLOCK_LENGTH.get(format, 32))
    assert length is not None
    assert block is not None
    blocks = draw.integers(0, 256, (num_outputs * length // block, block), dtype=np.uint8)
    for at in _HALVES[format]:
        blocks[:, at : at + 2] = draw.uniform(-0.02, 0.02, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(num_outputs, length)
