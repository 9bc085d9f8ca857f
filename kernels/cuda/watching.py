"""A step on the device shown to a tap, operation by operation: what `kernels/trace.py` asks of every backend.

Results are copied to the host as float32 and, where the tap has written to them, back. It must not know which kernels
made them.
"""

from collections.abc import Callable

import numpy as np
import torch

from kernels.backend import Integers, KVPair
from kernels.trace import OUTSIDE_LAYERS, Tap


class TapWatch:
    """A `Watch`.

    slots        int64 [rows] on the device, of the real rows; what follows them in a result is padding, and not shown
    logit_rows   rows of the step that the final norm and the head have
    show_slots   (layer, memory of one layer): shows `kv_write`
    """

    def __init__(
        self, tap: Tap, slots: torch.Tensor, logit_rows: Integers, show_slots: Callable[[int, KVPair], None]
    ) -> None:
        self._tap = tap
        self._slots = slots
        self._all_rows = np.arange(len(slots))
        self._logit_rows = logit_rows
        self._show_slots = show_slots

    def show(self, layer: int, operation: str, result: torch.Tensor) -> bool:
        is_of_logits = layer == OUTSIDE_LAYERS and operation != "embedding"
        rows = self._logit_rows if is_of_logits else self._all_rows
        if not len(rows):
            return False
        real = result[: len(rows)]
        numbers = real.to("cpu", torch.float32).reshape(len(rows), -1).contiguous().clone()
        before = numbers.clone()
        self._tap(layer, operation, rows, numbers.numpy())
        if torch.equal(before.view(torch.int32), numbers.view(torch.int32)):
            return False
        real.copy_(numbers.view(real.shape))
        return True

    def show_kv(self, layer: int, operation: str, memory: KVPair) -> None:
        if operation == "kv_write":
            self._show_slots(layer, memory)
            return
        keys: torch.Tensor = memory[0][0]
        where = (self._slots // keys.shape[2], slice(None), self._slots % keys.shape[2])
        numbers = _numbers(keys[where])
        if self.show(layer, operation, numbers):
            _numbers(keys)[where] = numbers


def _numbers(stored: torch.Tensor) -> torch.Tensor:
    """What lies in KV memory, as numbers: its 8-bit floats lie there as uint8."""
    return stored.view(torch.float8_e4m3fn) if stored.dtype == torch.uint8 else stored
