"""Single slots of KV memory, read and written whatever order a backend keeps them in.

A backend says where a slot lies (a view of its memory and an index into it); this reads and writes there. Blocks as
wholes are `memory.py`'s matter. It must not know whose slots they are.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int64]  # block_id * block_size + offset


class Places(NamedTuple):
    """Where slots lie in keys or in values: `view[where]` is [slots, layers, kv heads, …]."""

    view: NDArray[Any]
    where: tuple[Any, ...]


def plain_places(memory: NDArray[Any], slots: Slots) -> Places:
    """In memory [layers, blocks, kv heads, block size, head dim]."""
    blocks, offsets = np.divmod(slots, memory.shape[3])
    return Places(memory, (slice(None), blocks, slice(None), offsets))


def grouped_places(memory: NDArray[Any], slots: Slots, group: int) -> Places:
    """In memory of the same shape whose blocks are groups of `group` slots, 4 bytes of each in turn."""
    block_size, head_dim = memory.shape[3:]
    pair = 4 // memory.itemsize
    view = memory.reshape(*memory.shape[:3], block_size // group, head_dim // pair, group, pair)
    blocks, offsets = np.divmod(slots, block_size)
    groups, lanes = np.divmod(offsets, group)
    return Places(view, (slice(None), blocks, slice(None), groups, slice(None), lanes))


def read(parts: tuple[Places, Places]) -> NDArray[Any]:
    """Copies of the slots' keys, then values: [slots, layers, 2 × kv heads × head dim]."""
    taken = [part.view[part.where] for part in parts]
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in taken], axis=2)


def write(parts: tuple[Places, Places], rows: NDArray[Any]) -> None:
    """Put back what `read` gives."""
    for part, half in zip(parts, np.split(rows, 2, axis=2), strict=True):
        part.view[part.where] = half.reshape(part.view[part.where].shape)
