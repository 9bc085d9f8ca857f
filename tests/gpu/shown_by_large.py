"""A model of Llama 3 8B's shape, with random weights made on the device: what is measured beside what was predicted.

All 32 layers in bfloat16 (16 GB), then with 4-bit weights; `--quick` takes a quarter of the layers, and says so. Each
figure stands beside the roofline's (`tests/bench/roofline.py`) for a device of this name, so that what was written down
before there was a device is checked by it; and beside stock torch, on the very same tensors, as the cost of invariance.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from kernels.cuda import linear
from kernels.cuda.backend import CudaBackend
from kernels.cuda.decoder_weights import MATRICES, DecoderWeights
from kernels.decoder import DecoderShape
from kernels.gpu_report import measured_bandwidth, measured_matmul
from tests.bench.roofline import DEVICES, estimate
from tests.bench.step_work import Load, step_work
from tests.gpu.made_models import LARGE, made_weights
from tests.gpu.stage import TINY, Outcome, Stage, now_ns
from tests.gpu.stock import StockWeights
from tests.gpu.timed_steps import (
    all_told,
    decode_seconds,
    graph_seconds,
    kv_bytes,
    prefill_seconds,
    stock_seconds,
    weight_bytes,
)

CONTEXT = 1024  # as the roofline's table has it
PROMPT = 2048
BATCHES = (1, 16, 64, 256)
PRODUCT_ROWS = (1, 16, 64, 256, 2048)
Figures = dict[str, dict[str, float]]


class _Format(NamedTuple):
    name: str
    layers: str
    head: str


def large(stage: Stage) -> Outcome:
    shape = replace(LARGE, num_layers=stage.size(32, 1, 8)) if not stage.is_dry else TINY
    formats = [
        _Format("bf16", "BF16", "BF16"),
        _Format("4-bit", *(("Q4_K", "Q6_K") if not stage.is_dry else ("Q4_0",) * 2)),
    ]
    figures: Figures = {"device": _limits(stage)}

    def outcome() -> Outcome:
        layers = f"{shape.num_layers} of {LARGE.num_layers} layers of Llama 3 8B's shape, random weights"
        memory, products = (figures["device"][name] for name in ("bytes_per_second", "flops_per_second"))
        said = f"memory {memory / 1e9:.0f} GB/s, matrix products {products / 1e12:.0f} TFLOP/s, measured here"
        steps = {name: of_step for name, of_step in figures.items() if name != "device"}
        return Outcome(True, [_first(figures, layers), said, *all_told(steps)], {"layers": shape.num_layers, **figures})

    for format in formats[: stage.size(2, 2, 1)]:
        weights = made_weights(shape, format.layers, format.head, stage.device)
        backend = _loaded(shape, weights)
        _steps(stage, shape, format, backend, weights, figures, lambda: stage.keep(outcome()))
        if format.name == "bf16":
            _products(stage, backend, weights, figures)
            stage.keep(outcome())
        del weights, backend
        if stage.device.type == "cuda":
            torch.cuda.empty_cache()
    return outcome()


def _first(figures: Figures, layers: str) -> str:
    decodes = [
        f"{name} {of_step['tokens_per_s']:.0f} tok/s ({of_step['cost_of_invariance']:+.0%} of stock's time)"
        for name, of_step in figures.items()
        if "decode" in name and "cost_of_invariance" in of_step
    ]
    return f"{layers}: {'; '.join(decodes)}"


def _limits(stage: Stage) -> dict[str, float]:
    return {
        "bytes_per_second": measured_bandwidth(stage.device, now_ns, stage.size(4 << 30, 1 << 16)),
        "flops_per_second": measured_matmul(stage.device, now_ns, stage.size(8192, 64)),
    }


def _loaded(shape: DecoderShape, weights: DecoderWeights) -> CudaBackend:
    backend = CudaBackend()
    backend.load_made(shape, lambda: weights)
    return backend


def _steps(
    stage: Stage,
    shape: DecoderShape,
    format: _Format,
    backend: CudaBackend,
    weights: DecoderWeights,
    figures: Figures,
    keep: Callable[[], None],
) -> None:
    """Decodes of each batch, and a prefill; stock torch's where it can read the same weights."""
    context, prompt = stage.size(CONTEXT, 12), stage.size(PROMPT, 16)
    stock = StockWeights.sharing(weights) if format.name == "bf16" else None
    rates = figures["device"]
    for batch in (BATCHES if not stage.is_quick else BATCHES[::2])[: stage.size(4, 2)]:
        seconds = decode_seconds(stage, backend, batch, context)
        needed = (weight_bytes(backend) + kv_bytes(shape, batch, context)) / rates["bytes_per_second"]
        of_step = {"ours_s": seconds, "tokens_per_s": batch / seconds, "share_of_bandwidth": needed / seconds}
        of_step |= _predicted(shape, format, Load(batch, 1, context), seconds)
        if stock:
            of_step |= _beside(seconds, stock_seconds(stage, stock, shape, batch, 1, context))
        figures[f"{format.name}, decode of {batch}"] = of_step
        keep()
    seconds = prefill_seconds(stage, backend, prompt)
    flops = 2 * prompt * sum(weight.num_outputs * weight.num_inputs for weight in backend.layer_matrices())
    of_step = {"ours_s": seconds, "tokens_per_s": prompt / seconds}
    of_step["share_of_matmul_peak"] = flops / rates["flops_per_second"] / seconds
    of_step |= _predicted(shape, format, Load(1, prompt, prompt), seconds)
    if stock:
        of_step |= _beside(seconds, stock_seconds(stage, stock, shape, 1, prompt, 0))
    figures[f"{format.name}, prefill of {prompt}"] = of_step
    keep()


def _beside(ours: float, stock: float) -> dict[str, float]:
    return {"stock_s": stock, "cost_of_invariance": ours / stock - 1}


def _predicted(shape: DecoderShape, format: _Format, load: Load, seconds: float) -> dict[str, float]:
    """The roofline's figure for a device of this name, and how much of it was needed; nothing for others."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else DEVICES[0].name
    device = next((each for each in DEVICES if each.name.split()[0] in name), None)
    paper = device and estimate(step_work(shape, format.layers, format.head, load), load, device)
    return {"predicted_s": paper.graph, "of_predicted": seconds / paper.graph} if paper else {}


def _products(stage: Stage, backend: CudaBackend, weights: DecoderWeights, figures: Figures) -> None:
    """Each of a layer's four, through all layers so that no cache holds a weight, from a graph: ours and cuBLAS."""
    flops = figures["device"]["flops_per_second"]
    layers = backend.layer_matrices()
    for place, name in enumerate(MATRICES):
        ours, stock = (
            layers[place :: len(MATRICES)],
            [getattr(each, name).parts[0].planes.values for each in weights.layers],
        )
        num_outputs, num_inputs = ours[0].num_outputs, ours[0].num_inputs
        for rows in PRODUCT_ROWS[: stage.size(5, 1)]:
            x = torch.randn(rows, num_inputs, device=stage.device).bfloat16()
            out = torch.empty(rows, num_outputs, device=stage.device)

            def our_products(x: torch.Tensor = x, out: torch.Tensor = out, ours: Any = ours) -> None:
                for weight in ours:
                    linear.linear(x, weight, out)

            def stock_products(x: torch.Tensor = x, stock: Any = stock) -> None:
                for weight in stock:
                    F.linear(x, weight)

            mine, theirs = (graph_seconds(stage, call) / len(ours) for call in (our_products, stock_products))
            peak = 2 * rows * num_outputs * num_inputs / flops / mine
            figures[f"{name} of {rows} rows"] = {"ours_s": mine, "share_of_matmul_peak": peak} | _beside(mine, theirs)
