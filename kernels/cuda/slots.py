"""Single slots of KV memory on the device, read to the host and written from it: to look into a step, to plant a fault.

Few slots and seldom, so it is plain torch, and waits for the device. Numbers come and go as their bits: uint16 for
bfloat16, uint8 for e4m3. It must not know whose slots they are.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_BITS = {torch.bfloat16: torch.int16, torch.uint8: torch.uint8}

Pair = tuple[torch.Tensor, torch.Tensor]


def read_slots(memory: Pair, slots: NDArray[np.int64]) -> NDArray[Any]:
    """Copies of the slots' keys, then values: uint16 or uint8 [slots, layers, 2 × kv heads × head dim].

    memory   keys and values, [layers, blocks, kv heads, block size, head dim] each
    slots    block_id × block size + offset
    """
    taken = [_bits(part)[_places(part, slots)].permute(2, 0, 1, 3) for part in memory]
    rows: NDArray[Any] = torch.cat([part.flatten(2) for part in taken], dim=2).cpu().numpy()
    return rows.view(np.uint16) if rows.dtype == np.int16 else rows


def write_slots(memory: Pair, slots: NDArray[np.int64], rows: NDArray[Any]) -> None:
    """Put back what `read_slots` gives."""
    num_layers, _, num_kv_heads, _, head_dim = memory[0].shape
    for part, half in zip(memory, np.split(rows, 2, axis=2), strict=True):
        bits = torch.from_numpy(np.ascontiguousarray(half).view(half.dtype.str.replace("u2", "i2")))
        of_slots = bits.view(len(slots), num_layers, num_kv_heads, head_dim).permute(1, 2, 0, 3)
        _bits(part)[_places(part, slots)] = of_slots.to(part.device)


def _bits(part: torch.Tensor) -> torch.Tensor:
    return part.view(_BITS[part.dtype])


def _places(part: torch.Tensor, slots: NDArray[np.int64]) -> tuple[Any, ...]:
    """Index of [layers, kv heads, slots, head dim]."""
    blocks, offsets = np.divmod(slots, part.shape[3])
    heads = torch.arange(part.shape[2], device=part.device)[:, None]
    return (slice(None), torch.from_numpy(blocks).to(part.device), heads, torch.from_numpy(offsets).to(part.device))
