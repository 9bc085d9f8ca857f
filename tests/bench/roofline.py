"""`python -m tests.bench.roofline`: how long a step of ours should take on GPUs that are not here, on paper.

A step is the launches that our code makes of it (`step_work.py`), one after the other; each takes as long as the
slowest of what it needs: its bytes, its tensor cores' work, its weights' conversion to bfloat16. To each is added what
starting it costs. Nothing here was measured by us: the devices' figures are their makers', the ASSUMPTIONS are stated
with the table, and both are there to be found wrong on a device (`tests/gpu/`).
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from kernels.decoder import DecoderShape
from tests.bench.step_work import Launch, Load, StepWork, step_work


class Device(NamedTuple):
    """Of the maker's data sheet, dense.

    bytes_a_second   of device memory
    flops            of the tensor cores, bfloat16
    gigahertz        boost clock
    memory           bytes
    """

    name: str
    bytes_a_second: float
    flops: float
    multiprocessors: int
    gigahertz: float
    memory: float


class Model(NamedTuple):
    """A format for all matrices but the head, which is tied, and one for that."""

    name: str
    shape: DecoderShape
    format: str
    head_format: str


DEVICES = (
    Device("H200", 4.80e12, 989e12, 132, 1.98, 141e9),
    Device("H100 SXM", 3.35e12, 989e12, 132, 1.98, 80e9),
    Device("A100 SXM", 2.04e12, 312e12, 108, 1.41, 80e9),
    Device("L4", 0.30e12, 121e12, 58, 2.04, 24e9),
)
_SMOL = DecoderShape(30, 576, 1536, 9, 3, 64, 49152, 1e-5)
_LLAMA_1B = DecoderShape(16, 2048, 8192, 32, 8, 64, 128256, 1e-5)
_LLAMA_8B = DecoderShape(32, 4096, 14336, 32, 8, 128, 128256, 1e-5)
_LLAMA_70B = DecoderShape(80, 8192, 28672, 64, 8, 128, 128256, 1e-5)
MODELS = (
    Model("135M Q4_1", _SMOL, "Q4_1", "Q8_0"),
    Model("1B bf16", _LLAMA_1B, "BF16", "BF16"),
    Model("8B bf16", _LLAMA_8B, "BF16", "BF16"),
    Model("8B Q4_K", _LLAMA_8B, "Q4_K", "Q6_K"),
    Model("70B Q4_K", _LLAMA_70B, "Q4_K", "Q6_K"),
)
LOADS = {
    "decode, batch 1": Load(1, 1, 1024),
    "decode, batch 16": Load(16, 1, 1024),
    "decode, batch 64": Load(64, 1, 1024),
    "decode, batch 256": Load(256, 1, 1024),
    "prefill of 2048": Load(1, 2048, 2048),
}

BANDWIDTH_SHARE = 0.8
TENSOR_SHARE = 0.5
GRAPH_GAP = 2.0e-6
EAGER_LAUNCH = 15e-6
CONVERSION_INSTRUCTIONS = 6
_LANES = 128  # of a multiprocessor: instructions a cycle
_FREE_MEMORY = 0.92  # of a device, for weights and KV cache
ASSUMPTIONS = (
    f"{BANDWIDTH_SHARE:.0%} of the memory's bandwidth is reached by a launch with a program for every multiprocessor; "
    "with fewer, their part of it",
    f"{TENSOR_SHARE:.0%} of the tensor cores' dense bfloat16 rate, padding rows included",
    f"{CONVERSION_INSTRUCTIONS} instructions for each 8- or 4-bit weight and tile of rows, {_LANES} a cycle and "
    "multiprocessor, not overlapped with more than the other two",
    f"{GRAPH_GAP * 1e6:.0f} µs from the end of a kernel to the work of the next within a CUDA graph",
    f"{EAGER_LAUNCH * 1e6:.0f} µs of the host for each launch without one, overlapped with the device",
    "tiles as autotuning would take them if all candidates had equal bits (`step_work.likely_tile`)",
    "bytes are read once, whatever the caches; sampling, copies to the host and the engine's own time are left out",
)


class Estimate(NamedTuple):
    """
    graph, eager   seconds a step
    least          seconds that weights and KV take at the maker's full bandwidth
    bound          what most of the graph's time goes to: memory, tensor cores, conversion or starts
    """

    num_launches: int
    graph: float
    eager: float
    least: float
    bound: str


def estimate(work: StepWork, load: Load, device: Device) -> Estimate | None:
    """None where weights and KV cache do not fit the device."""
    kv_bytes = load.num_sequences * load.context * work.kv_bytes_a_token
    if work.weight_bytes + kv_bytes > _FREE_MEMORY * device.memory:
        return None
    spent = {"memory": 0.0, "tensor cores": 0.0, "conversion": 0.0}
    for launch in work.launches:
        needs = _needs(launch, device)
        slowest = max(needs, key=lambda name: needs[name])
        spent[slowest] += needs[slowest]
    running = sum(spent.values())
    spent["starts"] = len(work.launches) * GRAPH_GAP
    return Estimate(
        num_launches=len(work.launches),
        graph=running + spent["starts"],
        eager=max(running + spent["starts"], len(work.launches) * EAGER_LAUNCH),
        least=(work.weight_bytes + kv_bytes) / device.bytes_a_second,
        bound=max(spent, key=lambda name: spent[name]),
    )


def _needs(launch: Launch, device: Device) -> dict[str, float]:
    """Seconds of each."""
    busy = min(1.0, launch.programs / device.multiprocessors)
    conversions = device.multiprocessors * _LANES * device.gigahertz * 1e9
    return {
        "memory": launch.bytes_moved / (device.bytes_a_second * BANDWIDTH_SHARE * busy),
        "tensor cores": launch.flops / (device.flops * TENSOR_SHARE * busy),
        "conversion": launch.dequantised * CONVERSION_INSTRUCTIONS / (conversions * busy),
    }


def table(models: Sequence[Model], loads: dict[str, Load], devices: Sequence[Device]) -> list[str]:
    """Markdown. A device's cell: ms a step in a graph / without, tokens/s in a graph, share of the bandwidth, bound."""
    lines = [f"| model, step | launches | {' | '.join(device.name for device in devices)} |"]
    lines.append("|---" * (len(devices) + 2) + "|")
    for model in models:
        for name, load in loads.items():
            work = step_work(model.shape, model.format, model.head_format, load)
            estimates = [estimate(work, load, device) for device in devices]
            cells = " | ".join(_cell(each, load) for each in estimates)
            lines.append(f"| {model.name}, {name} | {len(work.launches)} | {cells} |")
    return lines


def _cell(estimate: Estimate | None, load: Load) -> str:
    if estimate is None:
        return "does not fit"
    per_second = load.num_rows / estimate.graph
    return (
        f"{_milliseconds(estimate.graph)} / {_milliseconds(estimate.eager)} ms, {per_second:,.0f} tok/s, "
        f"{estimate.least / estimate.graph:.0%}, {estimate.bound}"
    )


def _milliseconds(seconds: float) -> str:
    """Two or three digits: an estimate has no more."""
    figure = seconds * 1e3
    return f"{figure:.2f}" if figure < 10 else f"{figure:.1f}" if figure < 100 else f"{figure:.0f}"


def main() -> int:
    print("On paper, nothing measured. Contexts of 1,024 tokens, bfloat16 KV cache. Assumed:")
    print(*(f"- {assumption}" for assumption in ASSUMPTIONS), "", sep="\n")
    print(*table(MODELS, LOADS, DEVICES), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
