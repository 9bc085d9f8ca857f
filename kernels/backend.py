"""What a backend is given and what it gives back: the seam behind which numbers are made.

A step is one call: token ids, positions, block tables and slots in, hidden rows out, so that a native library needs to
be entered once per step; a second one draws tokens from the logits, which stay inside. The arrays are numpy's,
C-contiguous, so that a process whose backend needs no torch need not load it. Whatever the backend, the bits of an
output row depend on that row's own tokens and the weights alone: not on the other rows, its place among them, chunking,
block ids, threads or memory placement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernels.decoder import DecoderParameters as DecoderParameters
from kernels.decoder import DecoderShape as DecoderShape
from kernels.decoder import LayerParameters as LayerParameters
from kernels.sampling import Draw, DrawRow
from kernels.scoring import RowScores
from kernels.trace import Tap

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
KVMemory = Any  # the backend's own: a numpy array of its kv_dtype, or a tensor on its device; both can be sliced
KVPair = tuple[KVMemory, KVMemory]  # keys, values
KVRows = NDArray[Any]  # of the backend's kv_dtype


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step's rows: the tokens of each sequence that are computed now, sequence after sequence. All int64.

    token_ids, positions   [num_rows]
    slot_mapping           [num_rows]: block_id * block_size + offset, where the row's key and value go
    query_starts           [num_sequences + 1]: rows query_starts[i] … query_starts[i+1]-1 belong to sequence i
    context_lengths        [num_sequences]: tokens known up to and including the sequence's last row
    block_tables           [num_sequences, max blocks]: block ids in order, -1 past a table's end
    fresh_blocks           blocks whose first slot is written in this step: they are cleared beforehand, so that slots
                           past a sequence's end always hold zeros (0 × NaN would be NaN)
    logit_rows             [num_logits]: rows whose logits are wanted, ascending
    """

    token_ids: Integers
    positions: Integers
    slot_mapping: Integers
    query_starts: Integers
    context_lengths: Integers
    block_tables: Integers
    fresh_blocks: Integers
    logit_rows: Integers


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Valid until the backend runs another step: it may keep the memory and write the next step's there.

    hidden        [num_logits, hidden_size] float32: the final normed rows, input of the head
    read_logits   brings the logits out; serving draws from them where they are
    """

    hidden: Floats
    read_logits: Callable[[], Floats]

    @property
    def logits(self) -> Floats:
        """[num_logits, vocab_size] float32; a row may be longer in memory. For tests and the self-test."""
        return self.read_logits()


class LinearProbe(NamedTuple):
    """A way for the self-test into one linear layer: `apply` maps any number of rows as a step would."""

    name: str
    num_inputs: int
    apply: Callable[[Floats], Floats]


class CannotLoad(Exception):
    """The backend cannot serve this model on this machine; the text says why, and what to do."""


class Backend(Protocol):
    """One implementation of the decoder. Made once, loaded once, then called once per step from one thread.

    kv_dtype   of keys and values as numpy has it: float32, or uint16 for bfloat16, which numpy has not
    """

    name: str
    dtype: str
    kv_dtype: np.dtype[Any]
    vocab_size: int

    def load(self, parameters: DecoderParameters, max_positions: int) -> None:
        """Take the weights over; positions 0 … max_positions-1 will be asked for. Raises CannotLoad, MemoryError."""
        ...

    def kv_shape(self, num_blocks: int, block_size: int) -> tuple[int, ...]:
        """Shape of the key memory, and of the value memory; may hold more than `num_blocks` blocks."""
        ...

    def new_kv(self, num_blocks: int, block_size: int) -> KVPair:
        """Keys and values that steps read and write, where the backend computes: zeros of `kv_shape`.

        Raises MemoryError with the figure.
        """
        ...

    def new_host_kv(self, num_blocks: int, block_size: int) -> KVPair:
        """Keys and values of the host pool: [layers, `num_blocks`, …] as `kv_shape` goes on, block by block in memory.

        Only `copy_blocks` reads and writes them. Raises MemoryError with the figure.
        """
        ...

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        """Run one step; writes the rows' keys and values into their slots."""
        ...

    def forward_traced(self, batch: StepBatch, keys: KVMemory, values: KVMemory, tap: Tap) -> StepOutput:
        """`forward`, to the same bits, one operation after the other, each result shown to `tap` (`trace.py`)."""
        ...

    def draw(self, rows: Sequence[DrawRow]) -> list[Draw]:
        """Draw a token from each row of the last step's logits; `rows` in their order, one for each.

        A draw depends on its own row of logits and its DrawRow alone.
        """
        ...

    def score(self, rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
        """What rows of the last step say of given tokens, and their likeliest (`scoring.py`); bits as a draw's are.

        rows        int64, of the step's rows: none of its logit_rows, and each is asked about once
        token_ids   int64 beside them
        num_top     alternatives wanted of each; at most the vocabulary
        """
        ...

    def read_slots(self, memory: KVPair, slots: Integers) -> KVRows:
        """What lies in slots, key then value: [slots, layers, 2 × kv heads × head dim], the same from any slot.

        memory   (keys, values) of all layers or of some
        slots    block_id * block_size + offset
        """
        ...

    def write_slots(self, memory: KVPair, slots: Integers, rows: KVRows) -> None:
        """Put rows as `read_slots` gives them into slots: to plant a fault."""
        ...

    def copy_blocks(
        self, source: KVPair, target: KVPair, source_blocks: Sequence[int], target_blocks: Sequence[int]
    ) -> None:
        """Write blocks of one KV memory over those of another, or of the same, in order, whole and in all layers.

        source, target   (keys, values), of the shape that `kv_shape` says, for any number of blocks and in any order
        """
        ...

    def digest_blocks(self, memory: KVPair, blocks: Sequence[int]) -> list[int]:
        """A u64 over each block's keys and values in all layers, as they lie in memory: `block_digest.py` says which.

        memory   (keys, values), as in `copy_blocks`
        """
        ...

    def set_num_threads(self, num_threads: int) -> None: ...

    def numerics(self) -> dict[str, str]:
        """All that decides the bits apart from weights: sources, tile and split sizes, libraries, CPU code path."""
        ...

    def linear_probes(self) -> list[LinearProbe]:
        """One probe per distinct shape of linear layer."""
        ...


@runtime_checkable
class LaunchingBackend(Protocol):
    """What a `Backend` may be beside: one whose device computes while the caller goes on."""

    def launch(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> Callable[[], StepOutput]:
        """Begin what `forward` does; returns what waits for its end. One at a time, and nothing else in between."""
        ...
