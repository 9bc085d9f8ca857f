"""Key and value memory, by layer and slot. Who owns a block is the core's matter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.backend import Backend, DecoderShape, KVMemory, KVPair

_LEAST_DEFAULT_BYTES = 256 * 1024 * 1024
_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class KVStore:
    """
    keys, values   the backend's own (`Backend.new_kv`), zero at first: arrays in memory, or tensors on its device
    host           keys and values of the host blocks (`Backend.new_host_kv`); None: nothing can be swapped
    """

    backend: Backend
    keys: KVMemory
    values: KVMemory
    num_blocks: int
    block_size: int
    host: KVPair | None = None

    @classmethod
    def allocate(cls, backend: Backend, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> "KVStore":
        """Where the backend computes on the processor, memory is taken as blocks are first written."""
        keys, values = backend.new_kv(num_blocks, block_size)
        host = backend.new_host_kv(num_host_blocks, block_size) if num_host_blocks else None
        return cls(backend, keys, values, num_blocks, block_size, host)

    def swap_out(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Copy blocks to the host pool, before anything else is written to them."""
        assert self.host is not None, "nothing can be swapped: the store was made without a host pool"
        self.backend.copy_blocks((self.keys, self.values), self.host, blocks, host_blocks)

    def swap_in(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy them back, before a step reads them."""
        assert self.host is not None, "nothing can be swapped: the store was made without a host pool"
        self.backend.copy_blocks(self.host, (self.keys, self.values), host_blocks, blocks)

    def digests(self, blocks: Sequence[int]) -> list[int]:
        """u64 of what lies in each block, keys and values of all layers (`kernels/block_digest.py`)."""
        return self.backend.digest_blocks((self.keys, self.values), blocks)

    def copy_slot(self, source: int, target: int) -> None:
        """Overwrite slot `target` (block_id * block_size + offset) with `source`, in all layers: to plant a fault."""
        slots = np.array([source, target])
        rows = self.backend.read_slots((self.keys, self.values), slots[:1])
        self.backend.write_slots((self.keys, self.values), slots[1:], rows)


def kv_block_bytes(shape: DecoderShape, block_size: int, dtype: np.dtype[Any]) -> int:
    """Bytes of one block's keys and values over all layers."""
    return 2 * dtype.itemsize * shape.num_layers * shape.num_kv_heads * shape.head_dim * block_size


def default_kv_bytes(block_bytes: int, block_size: int, context_length: int) -> int:
    """Memory of the pool where nobody says how much: 256 MiB, and for a larger model what one context of it takes.

    With the prefix cache on, a pool fills in time, however little runs: its size is what the process will take. 256 MiB
    are 11,648 tokens of the default model, 50 chats of 230 tokens at once. A context counts up to 8,192 tokens.
    """
    num_blocks = -(-min(context_length, _DEFAULT_CONTEXT) // block_size)
    return max(_LEAST_DEFAULT_BYTES, num_blocks * block_bytes)
