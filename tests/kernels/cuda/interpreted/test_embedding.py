"""Gathering embeddings in the interpreter: what the file says, whatever the format."""

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from kernels.cuda.embedding import gather
from kernels.cuda.weights import pack
from kernels.stored_tensor import StoredTensor

WIDTH = 512 + 64  # the last piece of columns is not whole


def _stored(format: str, width: int) -> StoredTensor:
    numbers = np.random.default_rng(1).standard_normal((40, width), dtype=np.float32)
    rows = quantize(numbers, GGMLQuantizationType[format]).view(np.uint8).reshape(40, -1)
    return StoredTensor(format, (40, width), rows)


@pytest.mark.parametrize("format", ["BF16", "Q8_0", "Q4_1"])
def test_rows_are_what_the_file_says(format: str) -> None:
    stored = _stored(format, WIDTH)
    token_ids = torch.tensor([3, 39, 0, 3, 17], dtype=torch.int32)
    out = torch.empty(5, WIDTH)
    gather(token_ids, pack([stored], "cpu"), out)
    assert torch.equal(out, torch.from_numpy(stored.float32())[token_ids])


def test_numbers_are_scaled_after_they_are_made() -> None:
    stored = _stored("Q8_0", WIDTH)
    out = torch.empty(2, WIDTH)
    gather(torch.tensor([5, 6], dtype=torch.int32), pack([stored], "cpu"), out, scale=1152**0.5)
    assert torch.equal(out, torch.from_numpy(stored.float32())[5:7] * torch.tensor(1152**0.5))
