"""Key and value memory, by layer and slot. Who owns a block is the core's matter."""

from dataclasses import dataclass

import torch

from kernels.backend import Backend, DecoderShape


@dataclass(frozen=True, slots=True)
class KVStore:
    """
    keys, values   in the backend's own layout (`Backend.kv_shape`), zero at first; for `reference` float32
                   [layers, num_blocks + 1, kv heads, block_size, head_dim]
    """

    keys: torch.Tensor
    values: torch.Tensor
    num_blocks: int
    block_size: int

    @classmethod
    def allocate(cls, backend: Backend, num_blocks: int, block_size: int) -> "KVStore":
        """Memory is taken by the operating system as blocks are first written."""
        shape = backend.kv_shape(num_blocks, block_size)
        return cls(torch.zeros(shape), torch.zeros(shape), num_blocks, block_size)

    def copy_slot(self, source: int, target: int) -> None:
        """Overwrite slot `target` (block_id * block_size + offset) with `source`, in all layers: to plant a fault."""
        source_block, source_offset = divmod(source, self.block_size)
        target_block, target_offset = divmod(target, self.block_size)
        for memory in (self.keys, self.values):
            memory[:, target_block, :, target_offset] = memory[:, source_block, :, source_offset]


def kv_block_bytes(shape: DecoderShape, block_size: int) -> int:
    """Bytes of one block's float32 keys and values over all layers."""
    return 2 * 4 * shape.num_layers * shape.num_kv_heads * shape.head_dim * block_size
