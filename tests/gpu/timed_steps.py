"""Steps timed: ours as the engine calls them, and stock torch's from a CUDA graph; what they are read against."""

from collections.abc import Callable
from functools import partial

import torch

from kernels.cuda.backend import CudaBackend
from kernels.decoder import DecoderShape
from kernels.gpu_report import seconds_of
from kernels.packing import SequenceRows, pack_batch
from kernels.sampling import DrawParameters, DrawRow
from tests.gpu.stage import Stage, now_ns
from tests.gpu.stock import StockDecoder, StockWeights

BLOCK_SIZE = 16


def decode_seconds(stage: Stage, backend: CudaBackend, batch: int, context: int) -> float:
    """One step of `batch` sequences, each with a context of its own, arrays packed, a token drawn for each."""
    blocks = context // BLOCK_SIZE + 1
    keys, values = backend.new_kv(batch * blocks, BLOCK_SIZE)
    rows = [SequenceRows([7], context, range(number * blocks, (number + 1) * blocks), 1) for number in range(batch)]
    draws = [DrawRow(DrawParameters(temperature=0.0), 0)] * batch

    def step() -> None:
        backend.expect_draws(draws)
        backend.forward(pack_batch(rows, BLOCK_SIZE), keys, values)
        backend.draw(draws)

    return seconds_of(step, stage.device, now_ns, stage.size(30, 1))


def prefill_seconds(stage: Stage, backend: CudaBackend, prompt: int) -> float:
    """A prompt in one step."""
    blocks = prompt // BLOCK_SIZE + 1
    keys, values = backend.new_kv(blocks, BLOCK_SIZE)
    rows = [SequenceRows([7] * prompt, 0, range(blocks), 1)]
    step = partial(backend.forward, pack_batch(rows, BLOCK_SIZE), keys, values)
    return seconds_of(step, stage.device, now_ns, stage.size(10, 1))


def stock_seconds(
    stage: Stage, weights: StockWeights, shape: DecoderShape, batch: int, num_tokens: int, start: int
) -> float:
    """One step at positions start …."""
    decoder = StockDecoder(weights, shape, batch, start + num_tokens)
    token_ids = torch.full((batch, num_tokens), 7, device=stage.device)
    return graph_seconds(stage, partial(decoder.step, token_ids, start))


def graph_seconds(stage: Stage, step: Callable[[], object]) -> float:
    """From a CUDA graph where there is a GPU."""
    if stage.device.type != "cuda":
        return seconds_of(step, stage.device, now_ns, 1)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types here
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is chosen and allocated at first cannot be captured
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return seconds_of(graph.replay, stage.device, now_ns, 30)


def weight_bytes(backend: CudaBackend) -> int:
    """What a decode reads of them."""
    return sum(weight.num_bytes for weight in backend.layer_matrices()) + backend.matrices()["head"].num_bytes


def kv_bytes(shape: DecoderShape, batch: int, context: int) -> int:
    """What a decode reads of them, in bfloat16."""
    return batch * context * 2 * 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim


def told(figure: str, number: float) -> str:
    """As in "ours 5.02 ms", "199 tok/s", "share of bandwidth 63%"."""
    if figure.endswith("_s") and "tokens" not in figure:
        return f"{figure.removesuffix('_s').replace('_', ' ')} {number * 1e3:.2f} ms"
    if figure.startswith("tokens"):
        return f"{number:.0f} tok/s{' as in file' if figure.endswith('file') else ''}"
    return f"{figure.replace('_', ' ')} {number:.0%}"


def all_told(figures: dict[str, dict[str, float]]) -> list[str]:
    """A line for each step."""
    return [
        f"{name}: " + ", ".join([told(figure, number) for figure, number in of_step.items()])
        for name, of_step in figures.items()
    ]
