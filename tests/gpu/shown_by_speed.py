"""How fast a step of the model is, against what the device could do, and what invariance costs against stock torch.

A decode reads all weights and every key and value once: its limit is the memory's measured rate. A prefill multiplies
each weight with every token: its limit is the library's measured matrix product. Ours is the whole step as the engine
calls it, arrays packed and greedy tokens drawn; stock is cuBLAS and SDPA in a CUDA graph, with contiguous keys and
values and no draw. Weights of the stock path are bfloat16, ours as they lie in the file; where the file is quantised
both are given, ours in bfloat16 too, so that the cost of invariance is of equal bytes.
"""

from typing import Any

import torch

from kernels.cuda.backend import CudaBackend
from kernels.decoder import DecoderParameters
from kernels.gpu_report import measured_bandwidth, measured_matmul
from tests.gpu.stage import Outcome, Stage, now_ns
from tests.gpu.stock import StockWeights
from tests.gpu.timed_steps import all_told, decode_seconds, kv_bytes, prefill_seconds, stock_seconds, weight_bytes
from tests.gpu.widened import in_bfloat16

CONTEXT = 512
PROMPT = 2048
BATCHES = (1, 16, 64, 256)


def speed(stage: Stage) -> Outcome:
    """tok/s, milliseconds and shares of the limits, and the cost of invariance, for each batch and for a prefill."""
    bandwidth = measured_bandwidth(stage.device, now_ns, stage.size(2 << 30, 1 << 16))
    flops = measured_matmul(stage.device, now_ns, stage.size(8192, 64))
    wide, shape = in_bfloat16(stage.parameters), stage.parameters.shape
    ours, in_file = _loaded(stage, wide), _loaded(stage, stage.parameters)
    context, prompt = stage.size(CONTEXT, 12), stage.size(PROMPT, 16)
    stock_weights = StockWeights.of(wide, max(context + 1, prompt), stage.device, torch.bfloat16)
    limits = f"memory {bandwidth / 1e9:.0f} GB/s, matrix products {flops / 1e12:.1f} TFLOP/s, measured here"
    figures: dict[str, dict[str, float]] = {}

    def outcome() -> Outcome:
        device: dict[str, Any] = {"device": {"bytes_per_second": bandwidth, "flops_per_second": flops}}
        return Outcome(True, [f"{stage.model_name}: {limits}", *all_told(figures)], device | figures)

    for batch in BATCHES[: stage.size(4, 2)]:
        mine, stored = (decode_seconds(stage, backend, batch, context) for backend in (ours, in_file))
        stock = stock_seconds(stage, stock_weights, shape, batch, 1, context)
        limit = (weight_bytes(ours) + kv_bytes(shape, batch, context)) / bandwidth
        figures[f"decode of {batch} at {context}"] = {
            "ours_s": mine,
            "as_in_file_s": stored,
            "stock_s": stock,
            "tokens_per_s": batch / mine,
            "tokens_per_s_as_in_file": batch / stored,
            "share_of_bandwidth": limit / mine,
            "cost_of_invariance": mine / stock - 1,
        }
        stage.keep(outcome())
    mine, stock = prefill_seconds(stage, ours, prompt), stock_seconds(stage, stock_weights, shape, 1, prompt, 0)
    needed = 2 * prompt * sum(weight.num_outputs * weight.num_inputs for weight in ours.layer_matrices())
    figures[f"prefill of {prompt}"] = {
        "ours_s": mine,
        "stock_s": stock,
        "tokens_per_s": prompt / mine,
        "share_of_matmul": needed / flops / mine,
        "cost_of_invariance": mine / stock - 1,
    }
    return outcome()


def _loaded(stage: Stage, parameters: DecoderParameters) -> CudaBackend:
    assert stage.device
    backend = CudaBackend()
    backend.load(parameters, stage.size(4096, 64))
    return backend
