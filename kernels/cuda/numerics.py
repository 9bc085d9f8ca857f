"""What decides the bits of the cuda backend, apart from weights: for the numerics class.

Equal entries must mean equal bits, so all is named that may change them: the source files here but those that only
bring numbers to and fro, triton with its compiler, torch, the device's kind, and of each matrix the order of its sums.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
import triton

from kernels.cuda.launch import INTERPRETED
from kernels.cuda.weights import Weight

_DECIDE_NO_BIT = (
    *("__init__.py", "backend.py", "block_copy.py", "block_digest.py", "graphs.py", "numerics.py", "prepared.py"),
    *("device_memory.py", "probes.py", "running.py", "step_arrays.py", "watch.py"),
    *("kv_memory.py", "slots.py", "staging.py", "watching.py", "workspace.py"),  # bring numbers to and fro
    *("attention_tuning.py", "autotune.py", "device_bench.py", "tile_cache.py"),  # choose among equal bits
    *("tuned_weights.py", "tuning.py"),
    *("interpreter.py", "linear_variants.py"),
)
_SHARED = ("philox.py", "reference_sampling.py", "rotary.py", "stored_tensor.py")


def numerics(device: torch.device, matrices: Mapping[str, Weight]) -> dict[str, str]:
    """matrices: name → a weight; all layers' are of the same shapes."""
    return {
        "sources": _sources_digest(),
        "triton": triton.__version__,
        "torch": torch.__version__,
        "device": _device_kind(device),
        "matrix_products": "; ".join([f"{name} {_orders(weight)}" for name, weight in matrices.items()]),
    }


def _orders(weight: Weight) -> str:
    """As in "bits 4 depth 128 splits 2": what `tiles.py` says decides the order of the sums."""
    parts = [
        f"bits {part.shape.layout.bits} depth {part.plan.order.depth} splits {part.plan.order.splits}"
        for part in weight.parts
    ]
    return ", ".join(parts)


def _device_kind(device: torch.device) -> str:
    if INTERPRETED:
        return "triton's interpreter"
    major, minor = torch.cuda.get_device_capability(device)
    return f"compute capability {major}.{minor}"


def _sources_digest() -> str:
    digest = hashlib.sha256()
    here = Path(__file__).parent
    own = [path for path in sorted(here.glob("*.py")) if path.name not in _DECIDE_NO_BIT]
    for path in (*own, *(here.parent / name for name in _SHARED)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
