"""The CPU backend: one call of the native library runs a whole step.

Activations are float32; before a quantised weight they are rounded to int8 in blocks of 32, and the integer dot
products with the weights' own blocks are exact. Keys and values are kept as bfloat16, or as float32 where asked for.
The library's instruction set is no part of the numerics class: AVX-512, AVX2 and the portable build give the same bits
(`src/lanes.h` says why, tests/kernels/test_cpu_instruction_sets.py shows it), and so do compilers and processors
(test_cpu_other_compilers.py).
"""

import ctypes as c
import hashlib
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from kernels import memory
from kernels.backend import (
    DecoderParameters,
    DecoderShape,
    Floats,
    Integers,
    KVMemory,
    KVPair,
    KVRows,
    LinearProbe,
    StepBatch,
    StepOutput,
)
from kernels.cpu import library as native
from kernels.cpu.draws import DrawCall
from kernels.cpu.scores import score
from kernels.cpu.tap_callback import TapCallback
from kernels.cpu.weights import hand_over
from kernels.rotary import rotary_tables
from kernels.sampling import Draw, DrawRow
from kernels.scoring import RowScores
from kernels.slots import Places, grouped_places, plain_places, read, write
from kernels.trace import Tap

SPLIT_KEYS = 256  # kSplitKeys in src/attention.h
_LANES = 16
_STATISTICS_BYTES = 24  # RowStatistics in src/row_statistics.h

KV_DTYPES: dict[str, np.dtype[Any]] = {"bfloat16": np.dtype(np.uint16), "float32": np.dtype(np.float32)}


class CpuBackend:
    """The native library. See `Backend` for the interface.

    num_threads       of the library's own; there are no others in a process that serves with this backend
    dtype             of keys and values: "auto" (bfloat16), "bfloat16" or "float32"
    instruction_set   None: the best one that the processor has
    Raises LibraryUnavailable.
    """

    name = "cpu"

    def __init__(self, num_threads: int, dtype: str = "auto", instruction_set: str | None = None) -> None:
        self.dtype = "bfloat16" if dtype == "auto" else dtype
        self.kv_dtype = KV_DTYPES[self.dtype]
        self._library = native.load_library(instruction_set)
        self._draw_call = DrawCall(self._library)
        self._num_threads = num_threads
        self._decoder: int | None = None

    @property
    def instruction_set(self) -> str:
        name: bytes = self._library.reprise_instruction_set()
        return name.decode()

    def set_num_threads(self, num_threads: int) -> None:
        self._num_threads = num_threads
        if self._decoder is not None:
            native.raise_if_failed(self._library, self._library.reprise_set_num_threads(self._decoder, num_threads))

    def load(self, parameters: DecoderParameters, max_positions: int) -> None:
        """Raises MemoryError. `unsupported_reason` must have said nothing."""
        self.close()
        self.shape = parameters.shape
        self._hidden = self._logits = np.empty((0, 0), dtype=np.float32)
        self._statistics = np.empty((0, _STATISTICS_BYTES), dtype=np.uint8)
        self._num_logits = 0
        self.vocab_size = parameters.shape.vocab_size
        self._parameters = parameters
        cos, sin = _rotary_tables(parameters, max_positions)
        self._rotary_digest = hashlib.sha256(cos.tobytes() + sin.tobytes()).hexdigest()
        fields = {name: getattr(self.shape, name) for name, _kind in native.Shape._fields_}
        shape = native.Shape(**fields | {"activation": native.ACTIVATION_NUMBERS[self.shape.activation]})
        decoder = self._library.reprise_create(
            c.byref(shape), cos.shape[1], cos.ctypes.data, sin.ctypes.data, self._num_threads
        )
        native.raise_if_failed(self._library, decoder)
        self._decoder = decoder
        self._kept = hand_over(self._library, decoder, parameters, self._num_threads)

    def close(self) -> None:
        """End the threads and free the weights. May be called twice."""
        if self._decoder is not None:
            self._library.reprise_destroy(self._decoder)
            self._decoder = None

    def __del__(self) -> None:
        if hasattr(self, "_decoder"):
            self.close()

    def kv_shape(self, num_blocks: int, block_size: int) -> tuple[int, ...]:
        """[layers, blocks, kv heads, block size, head dim]; what lies in the last two is the library's own order."""
        shape = self.shape
        return (shape.num_layers, num_blocks, shape.num_kv_heads, block_size, shape.head_dim)

    def new_kv(self, num_blocks: int, block_size: int) -> KVPair:
        return memory.new_kv(self.kv_shape(num_blocks, block_size), self.kv_dtype)

    def new_host_kv(self, num_blocks: int, block_size: int) -> KVPair:
        return memory.new_host_kv(self.kv_shape(num_blocks, block_size), self.kv_dtype, num_blocks)

    def read_slots(self, memory: KVPair, slots: Integers) -> KVRows:
        return read(_places(memory, slots))

    def write_slots(self, memory: KVPair, slots: Integers, rows: KVRows) -> None:
        write(_places(memory, slots), rows)

    def copy_blocks(
        self, source: KVPair, target: KVPair, source_blocks: Sequence[int], target_blocks: Sequence[int]
    ) -> None:
        for from_memory, to_memory in zip(source, target, strict=True):
            memory.copy_blocks(from_memory, to_memory, source_blocks, target_blocks)

    def digest_blocks(self, memory: KVPair, blocks: Sequence[int]) -> list[int]:
        assert self._decoder is not None, "nothing is loaded"
        keys, values = memory
        assert keys.strides == values.strides, "keys and values lie alike"
        words = prod(keys.shape[2:]) * keys.itemsize // 8
        where = native.BlockMemory(keys.ctypes.data, values.ctypes.data, *keys.strides[:2], words, len(keys))
        chosen, digests = np.array(blocks, np.int64), np.zeros(len(blocks), np.uint64)
        if len(chosen):
            result = self._library.reprise_digest_blocks(
                self._decoder, c.byref(where), chosen.ctypes.data, len(chosen), digests.ctypes.data
            )
            native.raise_if_failed(self._library, result)
        return [int(digest) for digest in digests]

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        step_input, step_output, output = self._structures(batch, keys, values)
        result = self._library.reprise_step(self._decoder, c.byref(step_input), c.byref(step_output))
        native.raise_if_failed(self._library, result)
        return output

    def forward_traced(self, batch: StepBatch, keys: KVMemory, values: KVMemory, tap: Tap) -> StepOutput:
        step_input, step_output, output = self._structures(batch, keys, values)
        callback = TapCallback(self, tap, batch, (keys, values))
        result = self._library.reprise_step_traced(
            self._decoder, c.byref(step_input), c.byref(step_output), callback.function
        )
        native.raise_if_failed(self._library, result)
        callback.raise_what_was_raised()
        return output

    def _structures(
        self, batch: StepBatch, keys: KVMemory, values: KVMemory
    ) -> tuple[native.StepInput, native.StepOutput, StepOutput]:
        """What the library takes, and what is handed out when it is done."""
        assert keys.dtype == values.dtype == self.kv_dtype, "the KV memory was made for another dtype"
        self._num_logits = num_logits = len(batch.logit_rows)
        hidden, logits = self._outputs(num_logits)
        step_input = native.StepInput(
            len(batch.token_ids),
            len(batch.context_lengths),
            num_logits,
            batch.block_tables.shape[1],
            _address(batch.token_ids),
            _address(batch.positions),
            _address(batch.slot_mapping),
            _address(batch.query_starts),
            _address(batch.block_tables),
            _address(batch.logit_rows),
            _address(keys),
            _address(values),
            keys.strides[0] // keys.itemsize,
            keys.shape[3],
            self.kv_dtype.itemsize == 2,
        )
        step_output = native.StepOutput(_address(hidden), _address(logits), _address(self._statistics), logits.shape[1])
        return step_input, step_output, StepOutput(hidden, lambda: logits[:, : self.vocab_size])

    def draw(self, rows: Sequence[DrawRow]) -> list[Draw]:
        """Raises MemoryError."""
        assert self._decoder is not None, "nothing is loaded"
        assert len(rows) == self._num_logits, f"{self._num_logits} rows of logits, {len(rows)} to draw"
        return self._draw_call.draw(self._decoder, self._logit_rows, rows)

    def score(self, rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
        """Raises MemoryError."""
        assert self._decoder is not None, "nothing is loaded"
        return score(self._library, self._decoder, rows, token_ids, num_top)

    def _outputs(self, num_logits: int) -> tuple[Floats, Floats]:
        """Room for so many rows, kept from step to step: fresh pages for each would cost more than writing them."""
        if num_logits > len(self._hidden):
            stride = -(-self.vocab_size // _LANES) * _LANES  # the library writes whole vectors
            self._hidden = memory.zeros((num_logits, self.shape.hidden_size), np.float32)
            self._logits = memory.zeros((num_logits, stride), np.float32)
            self._statistics = np.zeros((num_logits, _STATISTICS_BYTES), dtype=np.uint8)
            self._logit_rows = native.LogitRows(
                _address(self._logits), stride, self.vocab_size, _address(self._statistics)
            )
        return self._hidden[:num_logits], self._logits[:num_logits]

    def numerics(self) -> dict[str, str]:
        return {
            "backend": self.name,
            "dtype": self.dtype,
            "sources": self._library.reprise_source_digest().decode(),
            "activations": "float32; int8 in blocks of 32 before quantised weights",
            "attention": f"splits of {SPLIT_KEYS} keys",
            "rotary": self._rotary_digest,
        }

    def linear_probes(self) -> list[LinearProbe]:
        layer = self._parameters.layers[0]
        probes: dict[tuple[int, ...], LinearProbe] = {}
        for which, name in enumerate(native.MATRICES):
            num_outputs, num_inputs = getattr(layer, name).shape
            apply = partial(self._apply, 0, which, num_outputs)
            probes.setdefault((num_outputs, num_inputs), LinearProbe(name, num_inputs, apply))
        return list(probes.values())

    def _apply(self, layer: int, which: int, num_outputs: int, rows: Floats) -> Floats:
        """One linear layer, as a step would compute it."""
        rows = np.ascontiguousarray(rows)
        result = np.empty((len(rows), -(-num_outputs // _LANES) * _LANES), dtype=np.float32)
        succeeded = self._library.reprise_apply(
            self._decoder, layer, which, rows.ctypes.data, len(rows), result.ctypes.data, result.shape[1]
        )
        native.raise_if_failed(self._library, succeeded)
        return np.ascontiguousarray(result[:, :num_outputs])


def _places(memory: KVPair, slots: Integers) -> tuple[Places, Places]:
    """Keys lie in groups of 16 slots where blocks are whole groups; values as the shape says."""
    keys, values = memory
    of_keys = plain_places(keys, slots) if keys.shape[3] % _LANES else grouped_places(keys, slots, _LANES)
    return of_keys, plain_places(values, slots)


def _rotary_tables(parameters: DecoderParameters, max_positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines, [2, positions, head_dim / 2] each: of the layers that see everything, then of local ones."""
    frequencies = parameters.inverse_frequencies
    kinds = (frequencies, parameters.local_inverse_frequencies or frequencies)
    tables = [rotary_tables(of_kind, max_positions) for of_kind in kinds]
    return np.stack([cos for cos, _ in tables]), np.stack([sin for _, sin in tables])


def unsupported_reason(shape: DecoderShape) -> str | None:
    """Why the native library cannot run a decoder of this shape; None: it can."""
    if shape.head_dim % _LANES:
        return f"heads of {shape.head_dim} dimensions: the CPU library needs a multiple of {_LANES}"
    return None


def _address(array: "np.ndarray[Any, Any]") -> int:
    """Of its first number. `array.ctypes` runs much Python to say it, and between two steps all code is cold."""
    address: int = array.__array_interface__["data"][0]
    return address
