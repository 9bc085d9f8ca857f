"""A loaded model's matrices by name, and ways into them for the self-test. It must not know steps."""

from functools import partial

import numpy as np
import torch

from kernels.backend import Floats, LinearProbe
from kernels.cuda.decoder_weights import MATRICES, DecoderWeights
from kernels.cuda.linear import linear
from kernels.cuda.weights import Weight


def matrices_of(weights: DecoderWeights) -> dict[str, Weight]:
    """Those of the first layer, and the head."""
    of_layer = {name: getattr(weights.layers[0], name) for name in MATRICES}
    return {**of_layer, "head": weights.head}


def probes_of(weights: DecoderWeights, device: torch.device) -> list[LinearProbe]:
    """One for each distinct shape."""
    probes: dict[tuple[int, int], LinearProbe] = {}
    for name, weight in matrices_of(weights).items():
        shape = (weight.num_outputs, weight.num_inputs)
        probes.setdefault(shape, LinearProbe(name, weight.num_inputs, partial(_apply, weight, device)))
    return list(probes.values())


def _apply(weight: Weight, device: torch.device, rows: Floats) -> Floats:
    """One matrix product, as a step would compute it."""
    x = torch.from_numpy(np.ascontiguousarray(rows)).to(device, torch.bfloat16)
    out = torch.empty(len(rows), weight.num_outputs, device=device)
    linear(x, weight, out)
    result: Floats = out.cpu().numpy()
    return result
