"""A tap as the native library calls it: pointers in, numpy views of the step's workspace out.

It mirrors Tap and Operation of `src/decoder.h`. It must not know what is looked for.
"""

import ctypes as c
from typing import TYPE_CHECKING

import numpy as np
from numpy.ctypeslib import as_array

from kernels.trace import OPERATIONS, OUTSIDE_LAYERS, Tap, show_slots

if TYPE_CHECKING:
    from kernels.backend import Backend, KVPair, StepBatch

FUNCTION = c.CFUNCTYPE(None, c.c_int, c.c_int, c.c_void_p, c.c_int, c.c_int, c.c_int64)


class TapCallback:
    """One traced step's callback. What `tap` raises is kept, since nothing may be raised through C++."""

    def __init__(self, backend: "Backend", tap: Tap, batch: "StepBatch", memory: "KVPair") -> None:
        self._backend, self._tap, self._batch, self._memory = backend, tap, batch, memory
        self._rows = np.arange(len(batch.token_ids))
        self._error: BaseException | None = None
        self.function = FUNCTION(self._call)

    def raise_what_was_raised(self) -> None:
        if self._error is not None:
            raise self._error

    def _call(self, layer: int, number: int, address: int | None, num_rows: int, length: int, stride: int) -> None:
        if self._error is not None or not num_rows:
            return
        try:
            self._show(layer, OPERATIONS[number], address, num_rows, length, stride)
        except BaseException as error:
            self._error = error

    def _show(self, layer: int, operation: str, address: int | None, num_rows: int, length: int, stride: int) -> None:
        if address is None:
            keys, values = (part[layer : layer + 1] for part in self._memory)
            show_slots(self._backend, self._tap, layer, (keys, values), self._batch.slot_mapping)
            return
        floats = as_array(c.cast(address, c.POINTER(c.c_float)), ((num_rows - 1) * stride + length,))
        result = np.lib.stride_tricks.as_strided(floats, (num_rows, length), (4 * stride, 4))
        at_the_end = layer == OUTSIDE_LAYERS and operation != "embedding"
        self._tap(layer, operation, self._batch.logit_rows if at_the_end else self._rows, result)
