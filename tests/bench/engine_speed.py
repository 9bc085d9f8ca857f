"""Tokens a second of the engine's kernels alone: decode by batch, prefill by length, beside the memory's bandwidth.

    python -m tests.bench.engine_speed [--backend cpu] [--threads 2] [--prototype libkern.so --prototype-python FOLDER]

No scheduling, sampling or HTTP is in these figures. Machines that are shared, and this one's two states of memory
bandwidth, make times of different runs incomparable: with --prototype both are timed in turns and the ratio is printed.
CPU time of one thread (--threads 1 --cpu-time) is the figure that a busy neighbour disturbs least.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine.execution.weights.load import load_model
from engine.text.model_source import DEFAULT_MODEL, resolve_model
from kernels.backend import Backend, KVMemory
from kernels.dispatch import choose_backend
from kernels.memory import zeros
from kernels.packing import SequenceRows, pack_batch

BLOCK_SIZE = 16
NUM_BLOCKS = 2048
BATCHES = (1, 8, 16, 32, 64)
PROMPTS = (128, 512, 2048)
CONTEXTS = ((1, 1024), (1, 8000), (16, 1024))

Step = Callable[[], object]


def main() -> None:
    options = _options()
    source = resolve_model(options.model)
    parameters = load_model(source).parameters
    backend, passed_over = choose_backend(options.backend, options.threads, options.dtype, parameters.shape)
    backend.load(parameters, 8192)
    print(f"{backend.name} ({backend.dtype} keys and values), {options.threads} threads {passed_over}")
    ours = _Engine(backend)
    peer = _Prototype(options, str(source.path)) if options.prototype else None
    clock = time.thread_time if options.cpu_time else time.perf_counter
    for label, rows, batch, context, prompt in _workloads():
        bandwidth = _bandwidth_gb_per_s()
        steps = [engine.step(batch, context, prompt) for engine in (ours, peer) if engine is not None]
        times = _interleaved(steps, clock, options.rounds)
        print(f"{label:24} {bandwidth:5.1f} GB/s  " + _line(times, rows))


def _workloads() -> Iterator[tuple[str, int, int, int, int]]:
    """Label, tokens a step, sequences, context before the step, tokens of a sequence in the step."""
    for batch in BATCHES:
        yield f"decode, batch {batch}", batch, batch, 128, 1
    for batch, context in CONTEXTS:
        yield f"decode, {batch} at {context}", batch, batch, context, 1
    for length in PROMPTS:
        yield f"prefill of {length}", length, 1, 0, length


class _Engine:
    """Steps of our backend, in memory full of numbers (memory never written maps to one page of zeros)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        shape = backend.kv_shape(NUM_BLOCKS, BLOCK_SIZE)
        self._keys, self._values = (_numbers(shape, backend.kv_dtype) for _ in range(2))

    def step(self, batch: int, context: int, prompt: int) -> Step:
        blocks = (context + prompt) // BLOCK_SIZE + 1
        rows = [
            SequenceRows([7] * prompt, context, range(index * blocks, (index + 1) * blocks), 1)
            for index in range(batch)
        ]
        packed = pack_batch(rows, BLOCK_SIZE)
        return lambda: self._backend.forward(packed, self._keys, self._values)


def _numbers(shape: tuple[int, ...], kind: np.dtype[Any]) -> KVMemory:
    """Of magnitude about one, as float32 or, without their lower halves, as bfloat16."""
    memory = zeros(shape, kind)
    random = np.random.default_rng(0)
    for layer in memory:
        values = random.standard_normal(layer.shape, dtype=np.float32)
        layer[:] = values if kind == np.float32 else values.view(np.uint32) >> 16
    return memory


class _Prototype:
    """The lab's kernels through the lab's own loader (model_lab.py in the folder of --prototype-python)."""

    def __init__(self, options: argparse.Namespace, path: str) -> None:
        sys.path.insert(0, options.prototype_python)
        lab: Any = __import__("model_lab")
        self._torch: Any = __import__("torch")
        self._lab = lab.Fast(lab.load_gguf(path), options.prototype, options.threads, 0, NUM_BLOCKS, 2048)
        for memory in (*self._lab.kc, *self._lab.vc):
            memory.normal_()

    def step(self, batch: int, context: int, prompt: int) -> Step:
        torch = self._torch
        blocks = (context + prompt) // BLOCK_SIZE + 1
        table = torch.arange(batch * blocks, dtype=torch.int32).reshape(batch, blocks).contiguous()
        ids = torch.full((batch * prompt,), 7)
        sequences = torch.arange(batch, dtype=torch.int32).repeat_interleave(prompt)
        positions = (torch.arange(prompt, dtype=torch.int32) + context).repeat(batch)
        last = torch.arange(prompt - 1, batch * prompt, prompt, dtype=torch.int32)
        return lambda: self._lab.step(ids, sequences, positions, table, last)


def _interleaved(steps: list[Step], clock: Callable[[], float], rounds: int) -> list[list[float]]:
    """Sorted times of each, taken in turns; at most about ten seconds a workload."""
    times: list[list[float]] = [[] for _ in steps]
    end = time.perf_counter() + 10
    for turn in range(rounds + 1):
        for index, step in enumerate(steps):
            started = clock()
            step()
            if turn > 0:  # the first warms up
                times[index].append(clock() - started)
        if turn > 2 and time.perf_counter() > end:
            break
    return [sorted(of_one) for of_one in times]


def _line(times: list[list[float]], num_rows: int) -> str:
    ours = times[0]
    text = (
        f"best {num_rows / ours[0]:7.0f} tok/s ({ours[0] * 1e3:7.2f} ms), median {ours[len(ours) // 2] * 1e3:7.2f} ms"
    )
    if len(times) > 1:
        peer = times[1]
        ratios = [peer[len(peer) * part // 4] / ours[len(ours) * part // 4] for part in range(4)]
        text += f"; of the prototype's speed: best {ratios[0]:.2f}, quartile {ratios[1]:.2f}, median {ratios[2]:.2f}"
    return text


def _bandwidth_gb_per_s() -> float:
    """One thread reading 128 MB, best of three: which state the memory is in, and how much of it is ours."""
    buffer = np.ones(32 * 1024 * 1024, np.float32)
    best = min(_seconds(lambda: buffer.sum()) for _ in range(3))
    return float(buffer.nbytes / best / 1e9)


def _seconds(work: Step) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cpu-time", action="store_true", help="the calling thread's CPU time instead of the wall's")
    parser.add_argument("--prototype", help="compiled lab kernels to time beside")
    parser.add_argument("--prototype-python", default=".", help="folder of the lab's model_lab.py")
    return parser.parse_args()


if __name__ == "__main__":
    main()
