"""How fast a step is, against what the device could do, and what invariance costs against stock torch.

A decode reads all weights and every key and value once: its limit is the memory's measured rate. A prefill multiplies
each weight with every token: its limit is the library's measured matrix product. Ours is the whole step as the engine
calls it, arrays packed and greedy tokens drawn; stock is cuBLAS and SDPA in a CUDA graph, with contiguous keys and
values and no draw. Weights of the stock path are bfloat16, ours as they lie in the file; where the file is quantised
both are given, ours in bfloat16 too, so that the cost of invariance is of equal bytes.
"""

from functools import partial

import torch

from kernels.cuda.backend import CudaBackend
from kernels.decoder import DecoderParameters
from kernels.gpu_report import measured_bandwidth, measured_matmul, seconds_of
from kernels.packing import SequenceRows, pack_batch
from kernels.sampling import DrawParameters, DrawRow
from tests.gpu.stage import Outcome, Stage, now_ns
from tests.gpu.stock import StockDecoder
from tests.gpu.widened import in_bfloat16

CONTEXT = 512
PROMPT = 2048
BATCHES = (1, 16, 64, 256)


def speed(stage: Stage) -> Outcome:
    """tok/s, milliseconds and shares of the limits, and the cost of invariance, for each batch and for a prefill."""
    bandwidth = measured_bandwidth(stage.device, now_ns, stage.size(2 << 30, 1 << 16))
    flops = measured_matmul(stage.device, now_ns, stage.size(8192, 64))
    wide = in_bfloat16(stage.parameters)
    ours, in_file = _loaded(stage, wide), _loaded(stage, stage.parameters)
    said = [f"memory {bandwidth / 1e9:.0f} GB/s, matrix products {flops / 1e12:.1f} TFLOP/s, measured here"]
    figures: dict[str, dict[str, float]] = {"device": {"bytes_per_second": bandwidth, "flops_per_second": flops}}
    for batch in BATCHES[: stage.size(4, 2)]:
        name = f"decode of {batch} at {stage.size(CONTEXT, 12)}"
        mine, stored = (_decode_seconds(stage, backend, batch) for backend in (ours, in_file))
        stock = _stock_seconds(stage, wide, batch, 1, stage.size(CONTEXT, 12))
        limit = (_bytes_of(ours) + _kv_bytes(stage, batch)) / bandwidth
        figures[name] = {
            "ours_s": mine,
            "as_in_file_s": stored,
            "stock_s": stock,
            "tokens_per_s": batch / mine,
            "tokens_per_s_as_in_file": batch / stored,
            "share_of_bandwidth": limit / mine,
            "cost_of_invariance": mine / stock - 1,
        }
    prompt = stage.size(PROMPT, 16)
    mine, stock = _prefill_seconds(stage, ours, prompt), _stock_seconds(stage, wide, 1, prompt, 0)
    needed = 2 * prompt * sum(weight.num_outputs * weight.num_inputs for weight in ours.layer_matrices())
    figures[f"prefill of {prompt}"] = {
        "ours_s": mine,
        "stock_s": stock,
        "tokens_per_s": prompt / mine,
        "share_of_matmul": needed / flops / mine,
        "cost_of_invariance": mine / stock - 1,
    }
    for name, of_step in list(figures.items())[1:]:
        said.append(f"{name}: " + ", ".join([_told(figure, number) for figure, number in of_step.items()]))
    return Outcome(True, said, figures)


def _told(figure: str, number: float) -> str:
    if figure.endswith("_s") and not figure.startswith("tokens"):
        return f"{figure.removesuffix('_s')} {number * 1e3:.2f} ms"
    if figure.startswith("tokens"):
        return f"{number:.0f} tok/s{' as in file' if figure.endswith('file') else ''}"
    return f"{figure.replace('_', ' ')} {number:.0%}"


def _loaded(stage: Stage, parameters: DecoderParameters) -> CudaBackend:
    assert stage.device
    backend = CudaBackend()
    backend.load(parameters, stage.size(4096, 64))
    return backend


def _decode_seconds(stage: Stage, backend: CudaBackend, batch: int) -> float:
    """One step of `batch` sequences, each with a context of its own, a token drawn for each."""
    context = stage.size(CONTEXT, 12)
    blocks = context // 16 + 1
    keys, values = backend.new_kv(batch * blocks, 16)
    rows = [SequenceRows([7], context, range(number * blocks, (number + 1) * blocks), 1) for number in range(batch)]
    draws = [DrawRow(DrawParameters(temperature=0.0), 0)] * batch

    def step() -> None:
        backend.forward(pack_batch(rows, 16), keys, values)
        backend.draw(draws)

    return seconds_of(step, stage.device, now_ns, stage.size(50, 1))


def _prefill_seconds(stage: Stage, backend: CudaBackend, prompt: int) -> float:
    keys, values = backend.new_kv(prompt // 16 + 1, 16)
    rows = [SequenceRows([7] * prompt, 0, range(prompt // 16 + 1), 1)]
    step = partial(backend.forward, pack_batch(rows, 16), keys, values)
    return seconds_of(step, stage.device, now_ns, stage.size(10, 1))


def _stock_seconds(stage: Stage, parameters: DecoderParameters, batch: int, num_tokens: int, start: int) -> float:
    """One step at positions start …, from a CUDA graph where there is a GPU."""
    decoder = StockDecoder(parameters, batch, start + num_tokens, stage.device, torch.bfloat16)
    token_ids = torch.full((batch, num_tokens), 7, device=stage.device)
    step = partial(decoder.step, token_ids, start)
    if stage.device.type != "cuda":
        return seconds_of(step, stage.device, now_ns, 1)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is chosen and allocated at first cannot be captured
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return seconds_of(graph.replay, stage.device, now_ns, 50)


def _bytes_of(backend: CudaBackend) -> int:
    return sum(weight.num_bytes for weight in backend.layer_matrices()) + backend.matrices()["head"].num_bytes


def _kv_bytes(stage: Stage, batch: int) -> int:
    shape = stage.parameters.shape
    return batch * stage.size(CONTEXT, 12) * 2 * 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim
