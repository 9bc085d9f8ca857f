"""What a prompt's log-probabilities cost: CPU time a token on one thread, and memory, with and without them.

    python -m tests.bench.prompt_logprobs_cost

The default model's native backend computes a prompt in chunks, alone; the shortest of three runs counts.
"""

import resource
import time

import numpy as np

from engine.execution.weights.load import load_model
from engine.text.model_source import DEFAULT_MODEL, resolve_model
from kernels.cpu.backend import CpuBackend
from kernels.packing import pack_batch
from tests.execution.steps import Memory, Story

NUM_TOKENS, CHUNK, NUM_RUNS = 1024, 512, 3
ASKED = (-1, 0, 5, 20)  # alternatives; -1: nothing is asked


def main() -> None:
    model = load_model(resolve_model(DEFAULT_MODEL))
    backend = CpuBackend(1)
    backend.load(model.parameters, NUM_TOKENS)
    tokens = np.random.default_rng(1).integers(0, backend.vocab_size, NUM_TOKENS)
    memory = Memory(backend, NUM_TOKENS // 16)
    for num_top in ASKED:
        shortest = min([_run_ns(memory, tokens, num_top) for _ in range(NUM_RUNS)])
        asked = "nothing asked" if num_top < 0 else f"{num_top} alternatives"
        print(f"{asked:>15}: {shortest / NUM_TOKENS / 1e6:.3f} ms a token, {_peak_mib():.0f} MiB at most so far")


def _run_ns(memory: Memory, tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]", num_top: int) -> int:
    story, started_ns = Story(tokens.tolist(), range(NUM_TOKENS // 16)), time.thread_time_ns()
    for start in range(0, NUM_TOKENS, CHUNK):
        end = start + CHUNK
        batch = pack_batch([story.rows(start, end, int(end == NUM_TOKENS))], 16)
        memory.backend.forward(batch, memory.keys, memory.values)
        if num_top >= 0:
            num_rows = min(end, NUM_TOKENS - 1) - start
            memory.backend.score(np.arange(num_rows), tokens[start + 1 : start + 1 + num_rows], num_top)
    return time.thread_time_ns() - started_ns


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
