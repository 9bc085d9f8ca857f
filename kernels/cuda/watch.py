"""Who looks into a step on the device sees each result before it is read. It must not know what is done with it."""

from typing import Protocol

import torch

from kernels.backend import KVPair


class Watch(Protocol):
    """Sees results as they come (`kernels/trace.py` names them)."""

    def show(self, layer: int, operation: str, result: torch.Tensor) -> bool:
        """`result` [rows, …] may be changed in place; whether it was."""
        ...

    def show_kv(self, layer: int, operation: str, memory: KVPair) -> None:
        """The rows' slots of one layer's memory [1, blocks, …] have been written."""
        ...


class _Nobody:
    def show(self, layer: int, operation: str, result: torch.Tensor) -> bool:
        return False

    def show_kv(self, layer: int, operation: str, memory: KVPair) -> None:
        pass


NOBODY = _Nobody()
