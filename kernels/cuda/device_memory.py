"""How the device's memory is shared out: what serving will take beside weights, and what is left for keys and values.

A step's tensors are made at their largest before this is asked, so they count as used. What cannot be made in advance
is reckoned: CUDA graphs by their launches (in public reports 67 graphs of an 8B model took 0.6 GiB, 25 KiB a launch),
arrays that travel by the largest step's. It must not know what the numbers are for.
"""

import torch

from kernels.cuda.launch import INTERPRETED
from kernels.cuda.prepared import MOST_PREPARED, MOST_ROW_SETS, Preparations
from kernels.decoder import DecoderShape
from kernels.device_backend import KVBudget, LargestStep

GRAPH_BYTES_A_LAUNCH = 32 << 10
LAUNCHES_A_LAYER, LAUNCHES_BESIDE = 11, 12
_SHARE_OF_LARGEST = 4  # one in so many of the prepared steps is taken to be as large as the largest
_SCRATCH_ROWS, _SCRATCH_BYTES_A_LOGIT = 64, 24  # of draws and scores


def kv_budget(
    shape: DecoderShape, preparations: Preparations, utilization: float, largest: LargestStep, device: torch.device
) -> KVBudget | None:
    """As `DeviceBackend.kv_budget`, the room being made. None in the interpreter, which has no device."""
    if INTERPRETED:
        return None
    torch.cuda.empty_cache()  # what torch holds and nobody uses would count as used
    free, total = torch.cuda.mem_get_info(device)
    return KVBudget(
        total, total - free, reserved_bytes(shape, preparations.bytes_of(largest)), int(total * utilization)
    )


def reserved_bytes(shape: DecoderShape, bytes_of_largest: int) -> int:
    """For graphs, prepared steps and scratch.

    bytes_of_largest   that the largest step's own arrays take on the device
    """
    launches = shape.num_layers * LAUNCHES_A_LAYER + LAUNCHES_BESIDE
    graphs = (MOST_PREPARED + MOST_ROW_SETS) * launches * GRAPH_BYTES_A_LAUNCH
    prepared = MOST_PREPARED * bytes_of_largest // _SHARE_OF_LARGEST
    return graphs + prepared + _SCRATCH_ROWS * shape.vocab_size * _SCRATCH_BYTES_A_LOGIT
