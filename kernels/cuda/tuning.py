"""A loaded model's matrices with the tiles that suit this device, chosen once and kept in a folder.

The interpreter has nothing to measure: there the default plans stay. It must not know how tiles are compared.
"""

from pathlib import Path
from typing import NamedTuple

import torch
import triton

from kernels.cuda.decoder_weights import DecoderWeights
from kernels.cuda.device_bench import DeviceBench
from kernels.cuda.launch import INTERPRETED
from kernels.cuda.tile_cache import TileCache, sources_digest
from kernels.cuda.tuned_weights import tune


class TunedDecoder(NamedTuple):
    """
    bits     digest of what every shape's tiles give on fixed inputs: belongs in the numerics class
    notice   why choices could not be kept; "" where they were
    """

    weights: DecoderWeights
    bits: str
    notice: str = ""


def tuned(weights: DecoderWeights, device: torch.device, folder: Path | None) -> TunedDecoder:
    """Some tens of seconds for shapes that this machine has not met. Raises NotInvariant.

    folder   where choices are kept; None: nowhere
    """
    if INTERPRETED:
        return TunedDecoder(weights, "interpreted")
    cache = None if folder is None else TileCache(folder, _key(device))
    choice = tune(weights.matrices(), DeviceBench(device), cache)
    return TunedDecoder(weights.with_matrices(choice.weights), choice.bits, choice.notice)


def _key(device: torch.device) -> dict[str, str]:
    return {
        "device": torch.cuda.get_device_name(device),
        "capability": str(torch.cuda.get_device_capability(device)),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "sources": sources_digest(),
    }
