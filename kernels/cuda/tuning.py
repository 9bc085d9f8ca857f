"""A loaded model's matrices with the tiles that suit this device, chosen once and kept among the caches.

The interpreter has nothing to measure: there the default plans stay. It must not know how tiles are compared.
"""

import os
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
    bits   digest of what every shape's tiles give on fixed inputs: belongs in the numerics class
    """

    weights: DecoderWeights
    bits: str


def tuned(weights: DecoderWeights, device: torch.device) -> TunedDecoder:
    """Some tens of seconds for shapes that this machine has not met. Raises NotInvariant."""
    if INTERPRETED:
        return TunedDecoder(weights, "interpreted")
    choice = tune(weights.matrices(), DeviceBench(device), TileCache(_cache_folder(), _key(device)))
    return TunedDecoder(weights.with_matrices(choice.weights), choice.bits)


def _key(device: torch.device) -> dict[str, str]:
    return {
        "device": torch.cuda.get_device_name(device),
        "capability": str(torch.cuda.get_device_capability(device)),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "sources": sources_digest(),
    }


def _cache_folder() -> Path:
    """Beside the models: $REPRISE_CACHE, else $XDG_CACHE_HOME/reprise, else ~/.cache/reprise."""
    if own := os.environ.get("REPRISE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reprise"
