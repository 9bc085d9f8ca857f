"""A step looked at operation by operation: what each operation of each layer made of each row, as a 64-bit digest.

Every backend computes the same operations under the same names, so two runs of one step can be laid beside each other,
whatever the backends, and the first row, layer and operation where their bits part is found. `Backend.forward_traced`
gives the bits of `forward`, several times slower; `forward` itself knows nothing of it. It must not know requests.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.block_digest import digest_rows

if TYPE_CHECKING:
    from kernels.backend import Backend, KVMemory, KVPair, StepBatch

LAYER_OPERATIONS = (
    "attention_norm",
    "q",  # with its bias, as k and v
    "k",
    "v",
    "rotary_q",  # with the norm per head where the model has one, as rotary_k
    "rotary_k",
    "kv_write",  # what lies in the row's slot then: key and value in the KV memory's dtype
    "attention",
    "o",
    "attention_residual",
    "mlp_norm",
    "gate",
    "up",
    "activation",
    "down",
    "mlp_residual",
)
OPERATIONS = ("embedding", *LAYER_OPERATIONS, "final_norm", "head")  # Operation in cpu/src/decoder.h
OUTSIDE_LAYERS = -1  # layer of the embedding, the final norm and the head

# (layer, operation, rows, result): called when `result` [num, …] of these rows of the step has been computed and before
# it is read; `rows` are int64. What is written to `result` is what the next operation reads: tests plant faults so.
# The final norm and the head have the rows whose logits are wanted alone. The array is not valid after the call.
Tap = Callable[[int, str, NDArray[np.int64], NDArray[Any]], None]


class OperationDigest(NamedTuple):
    """One row's result of one operation; `row` is its place in the step."""

    layer: int
    operation: str
    row: int
    digest: int


def trace_forward(
    backend: "Backend", batch: "StepBatch", keys: "KVMemory", values: "KVMemory"
) -> list[OperationDigest]:
    """Run the step as `forward` does; every operation's digest per row, in the order in which they were computed."""
    digests: list[OperationDigest] = []

    def tap(layer: int, operation: str, rows: NDArray[np.int64], result: NDArray[Any]) -> None:
        for row, digest in zip(rows.tolist(), digest_rows(result).tolist(), strict=True):
            digests.append(OperationDigest(layer, operation, row, digest))

    backend.forward_traced(batch, keys, values, tap)
    return digests


def show_slots(backend: "Backend", tap: Tap, layer: int, memory: "KVPair", slots: NDArray[np.int64]) -> None:
    """Show `kv_write` of one layer's memory [1, blocks, …] to the tap, and put back what it changed."""
    found = backend.read_slots(memory, slots)
    before = found.copy()
    tap(layer, "kv_write", np.arange(len(slots)), found.reshape(len(slots), -1))
    if not np.array_equal(found, before):
        backend.write_slots(memory, slots, found)


def num_places(num_layers: int) -> int:
    """How many (layer, operation) pairs a step has."""
    return num_layers * len(LAYER_OPERATIONS) + 3


def place_of(layer: int, operation: str, num_layers: int) -> int:
    """The pair's number in the order of computation: 0 is the embedding, the last one the head."""
    if layer != OUTSIDE_LAYERS:
        return 1 + layer * len(LAYER_OPERATIONS) + LAYER_OPERATIONS.index(operation)
    return 0 if operation == "embedding" else num_places(num_layers) - (2 if operation == "final_norm" else 1)


def operation_at(place: int, num_layers: int) -> tuple[int, str]:
    """(layer, operation) of a place."""
    outside = {0: "embedding", num_places(num_layers) - 2: "final_norm", num_places(num_layers) - 1: "head"}
    if place in outside:
        return OUTSIDE_LAYERS, outside[place]
    layer, index = divmod(place - 1, len(LAYER_OPERATIONS))
    return layer, LAYER_OPERATIONS[index]
