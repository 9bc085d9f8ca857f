"""Tokens drawn on the device against the reference's; steps with prefill in pieces against whole graphs and launches.

And what both are reckoned to take: milliseconds of sampled rows beside greedy ones, bytes of a graph's launch.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernels.backend import Floats, StepBatch
from kernels.cuda.backend import CudaBackend
from kernels.cuda.device_memory import GRAPH_BYTES_A_LAUNCH, LAUNCHES_A_LAYER, LAUNCHES_BESIDE
from kernels.cuda.draw_answers import answer
from kernels.cuda.draws import DeviceDraws, leaving
from kernels.cuda.graphs import device_capture
from kernels.cuda.head import statistics
from kernels.cuda.staging import Staging
from kernels.gpu_report import seconds_of
from kernels.packing import SequenceRows, pack_batch
from kernels.reference_sampling import draw_token
from kernels.sampling import Draw, DrawParameters, DrawRow
from tests.gpu.stage import Outcome, Stage, now_ns
from tests.kernels.random_draws import SHAPES, random_logits, random_row

OF_STEP = ("best", "highest", "log_sum")
ASKED = {
    "greedy": DrawParameters(temperature=0.0),
    "as it is": DrawParameters(temperature=1.0),
    "top_k and top_p": DrawParameters(temperature=0.8, top_k=40, top_p=0.95),
    "top_p": DrawParameters(temperature=0.7, top_p=0.9),
}


def draws_are_the_references(stage: Stage) -> Outcome:
    """Every token equal, over mixtures of all parameters; how many rows were read whole; what a sampled step takes."""
    vocab_size = stage.parameters.shape.vocab_size
    generator = np.random.default_rng(3)
    read_back: Counter[str] = Counter()
    different = compared = 0
    for shape in SHAPES[: stage.size(len(SHAPES), 2)]:
        rows = [random_row(generator, vocab_size) for _ in range(stage.size(60, 2))]
        logits = random_logits(generator, shape, len(rows), vocab_size)
        expected = [draw_token(of_row, row) for of_row, row in zip(logits, rows, strict=True)]
        for draw, of_reference in zip(_drawn(stage, logits, rows, read_back), expected, strict=True):
            compared += 1
            different += (draw.is_finite, draw.token_id) != (of_reference.is_finite, of_reference.token_id)
    seconds = {name: _seconds(stage, parameters, stage.size(64, 1)) for name, parameters in ASKED.items()}
    verdict = f"{compared} draws, {different} others than the reference's, {read_back.total()} of rows read whole"
    said = [verdict, f"read whole: {dict(read_back)}"]
    said += [f"64 rows {name}: {spent * 1e3:.2f} ms, launches, copy and draws" for name, spent in seconds.items()]
    return Outcome(not different, said, {"different": different, "read_back": dict(read_back), "seconds": seconds})


def _drawn(stage: Stage, logits: Floats, rows: Sequence[DrawRow], read_back: Counter[str]) -> list[Draw]:
    on_device = torch.from_numpy(logits).to(stage.device)
    dtypes = (torch.int32, torch.float32, torch.float32)
    kinds = {name: ((len(rows),), dtype) for name, dtype in zip(OF_STEP, dtypes, strict=True)}
    left = Staging({**kinds, **leaving(len(rows))}, stage.device)
    statistics(on_device, *(left.device[name] for name in OF_STEP))
    asked = DeviceDraws(logits.shape[1], stage.device).ask(rows, on_device, left.device)
    left.download()
    if stage.device.type == "cuda":
        torch.cuda.synchronize()
    return answer(asked, left.host, lambda places: logits[places], read_back)


def _seconds(stage: Stage, parameters: DrawParameters, count: int) -> float:
    logits = random_logits(np.random.default_rng(1), "zipf", count, stage.parameters.shape.vocab_size)
    rows = [DrawRow(parameters, position) for position in range(count)]
    return seconds_of(lambda: _drawn(stage, logits, rows, Counter()), stage.device, now_ns, stage.size(10, 1))


def prefill_in_pieces(stage: Stage) -> Outcome:
    """Steps of decodes and a chunk: the same bits launch by launch, whole and in pieces; milliseconds of each."""
    backend = stage.backend()
    memory = backend.new_kv(stage.size(400, 16), 16)
    batches = [_mixed(stage, *sizes) for sizes in ((3, 40), (5, 41), (9, 90), (4, 39))[: stage.size(4, 1)]]
    wanted: list[Floats] = []
    figures: dict[str, Any] = {}
    holds = True
    for name, has_graphs, in_pieces in (("launches", False, True), ("whole", True, False), ("pieces", True, True)):
        backend.choose_graphs(device_capture() if has_graphs else None, in_pieces=in_pieces)
        free = _free_bytes(stage)
        logits = [backend.forward(batch, *memory).logits.copy() for _ in range(3) for batch in batches]
        wanted = wanted or logits
        equal = all(np.array_equal(a.view(np.int32), b.view(np.int32)) for a, b in zip(wanted, logits, strict=True))
        holds &= equal
        figures[name] = {
            "equal": equal,
            "seconds": _step_seconds(stage, backend, batches[-1], memory),
            "bytes": free - _free_bytes(stage),
        }
    launches = stage.parameters.shape.num_layers * LAUNCHES_A_LAYER + LAUNCHES_BESIDE
    figures["bytes_a_launch"] = figures["whole"]["bytes"] / len(batches) / launches
    spent = ", ".join(f"{name} {figures[name]['seconds'] * 1e3:.2f} ms" for name in ("launches", "whole", "pieces"))
    bits = "equal bits" if holds else "OTHER BITS"
    reckoned = f"a graph's launch takes {figures['bytes_a_launch']:.0f} bytes, {GRAPH_BYTES_A_LAUNCH} are set aside"
    return Outcome(holds, [f"mixed steps: {bits}; {spent}", reckoned], figures)


def _mixed(stage: Stage, num_decodes: int, num_prompt: int) -> StepBatch:
    vocabulary = stage.parameters.shape.vocab_size
    decodes = [SequenceRows([number % vocabulary], 0, (number,), 1) for number in range(stage.size(num_decodes, 2))]
    prompt = [token * 7 % vocabulary for token in range(stage.size(num_prompt, 5))]
    return pack_batch([*decodes, SequenceRows(prompt, 0, range(12, 12 + len(prompt) // 16 + 1), 1)], 16)


def _step_seconds(stage: Stage, backend: CudaBackend, batch: StepBatch, memory: tuple[Any, Any]) -> float:
    return seconds_of(lambda: backend.forward(batch, *memory), stage.device, now_ns, stage.size(30, 1))


def _free_bytes(stage: Stage) -> int:
    return torch.cuda.mem_get_info(stage.device)[0] if stage.device.type == "cuda" else 0
