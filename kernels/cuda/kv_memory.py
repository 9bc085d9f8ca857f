"""Keys and values on the device and on the host: made, looked into, copied, digested. It must not know steps.

The device's have a spare block past the last, which pads a step; the host's lie block by block in pinned memory, so
that a swap is one copy a block.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernels.backend import Integers, KVPair, KVRows
from kernels.cuda import block_copy, block_digest, slots
from kernels.decoder import DecoderShape

KV_KINDS: dict[str, tuple[torch.dtype, np.dtype[Any]]] = {
    "bfloat16": (torch.bfloat16, np.dtype(np.uint16)),  # which numpy has not
    "float8": (torch.uint8, np.dtype(np.uint8)),
}


class DeviceKV:
    """The part of `Backend` that is about KV memory. Whoever derives from it sets `shape` before memory is made.

    dtype   "bfloat16" or "float8" (e4m3, scale 1)
    """

    shape: DecoderShape

    def __init__(self, dtype: str, device: torch.device) -> None:
        self.dtype = dtype
        self._kind, self.kv_dtype = KV_KINDS[dtype]
        self._device = device

    def kv_shape(self, num_blocks: int, block_size: int) -> tuple[int, ...]:
        """[layers, blocks, kv heads, block size, head dim]. The block past the last is the spare one: what pads a step
        writes there, and nobody reads it."""
        shape = self.shape
        return (shape.num_layers, num_blocks + 1, shape.num_kv_heads, block_size, shape.head_dim)

    def new_kv(self, num_blocks: int, block_size: int) -> KVPair:
        shape = self.kv_shape(num_blocks, block_size)
        return self._zeros(shape, self._device), self._zeros(shape, self._device)

    def new_host_kv(self, num_blocks: int, block_size: int) -> KVPair:
        num_layers, _num_blocks, *of_block = self.kv_shape(num_blocks, block_size)
        host = torch.device("cpu")
        keys, values = (self._zeros((num_blocks, num_layers, *of_block), host) for _ in range(2))
        return keys.transpose(0, 1), values.transpose(0, 1)

    def _zeros(self, shape: tuple[int, ...], where: torch.device) -> torch.Tensor:
        is_pinned = where.type == "cpu" and self._device.type == "cuda"
        try:
            return torch.zeros(shape, dtype=self._kind, device=where, pin_memory=is_pinned)
        except RuntimeError as error:  # torch.OutOfMemoryError is one, and what pinning says is another
            num_bytes = int(np.prod(shape)) * self._kind.itemsize
            raise MemoryError(f"{num_bytes} bytes of KV memory cannot be had on {where}: {error}") from error

    def read_slots(self, memory: KVPair, where: Integers) -> KVRows:
        return slots.read_slots(memory, where)

    def write_slots(self, memory: KVPair, where: Integers, rows: KVRows) -> None:
        slots.write_slots(memory, where, rows)

    def copy_blocks(
        self, source: KVPair, target: KVPair, source_blocks: Sequence[int], target_blocks: Sequence[int]
    ) -> None:
        block_copy.copy_blocks(source, target, source_blocks, target_blocks)

    def digest_blocks(self, memory: KVPair, blocks: Sequence[int]) -> list[int]:
        return block_digest.digest_blocks(*memory, blocks)
