"""What a draw costs: the native sampler on one thread against the reference's numpy, per row of 49,152 logits.

Half of the rows are a wide bell, half of them fall off like words do (Zipf), so that top_p has much to keep.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from engine.clock import SystemClock
from kernels.sampling import DrawParameters, DrawRow, SeenTokens
from tests.kernels.samplers import REFERENCE, Floats, native_sampler, native_sets

VOCAB_SIZE = 49_152
NUM_ROWS = 8
NUM_CONTEXT = 2_000

CASES: dict[str, DrawParameters] = {
    "greedy": DrawParameters(temperature=0.0),
    "temperature only": DrawParameters(),
    "top_p 0.9": DrawParameters(top_p=0.9),
    "top_k 40": DrawParameters(top_k=40),
    f"penalties, {NUM_CONTEXT:,} tokens": DrawParameters(repetition_penalty=1.1, presence_penalty=0.5),
    "20 top logprobs": DrawParameters(num_logprobs=20),
}


def measure_us(parameters: DrawParameters, num_rounds: int) -> dict[str, float]:
    """Median µs per row: in numpy, and as a backend's `draw` on each instruction set, all in turns."""
    logits, rows = _logits(), _rows(parameters)
    draws: dict[str, Callable[[], object]] = {"numpy": lambda: REFERENCE.draw(logits, rows)}
    for name in native_sets():
        draws[name] = partial(native_sampler(name).prepared(logits).draw, rows)
    clock = SystemClock()
    costs: dict[str, list[float]] = {name: [] for name in draws}
    for round_number in range(num_rounds):
        for name, draw in draws.items():
            if name in ("numpy", "portable") and round_number % 10:
                continue  # a hundred times as long
            before_ns = clock.now_ns()
            draw()
            costs[name].append((clock.now_ns() - before_ns) / 1_000 / NUM_ROWS)
    return {name: statistics.median(of_name) for name, of_name in costs.items()}


def _logits() -> Floats:
    generator = np.random.default_rng(0)
    values = generator.standard_normal((NUM_ROWS, VOCAB_SIZE)) * 3
    for row in values[NUM_ROWS // 2 :]:
        row[:] = -1.2 * np.log(generator.permutation(np.arange(1, VOCAB_SIZE + 1)))
    return values.astype(np.float32)


def _rows(parameters: DrawParameters) -> Sequence[DrawRow]:
    tokens = [int(token_id) for token_id in np.random.default_rng(1).integers(0, VOCAB_SIZE, NUM_CONTEXT)]
    half = NUM_CONTEXT // 2
    seen = SeenTokens(tokens[:half], tokens[half:]) if parameters.has_penalties else None
    return [DrawRow(parameters, position, seen) for position in range(NUM_ROWS)]


def report(num_rounds: int = 100) -> list[str]:
    names = native_sets()
    lines = [
        f"sampling cost: µs per row of {VOCAB_SIZE:,} logits, one thread, with its share of Python; ratio to numpy"
    ]
    lines.append(f"  {'':24}{'numpy':>9}" + "".join([f"{name:>20}" for name in names]))
    for case, parameters in CASES.items():
        costs = measure_us(parameters, num_rounds)
        native = [f"{costs[name]:10.1f} {costs['numpy'] / costs[name]:8.1f} x" for name in names]
        lines.append(f"  {case:24}{costs['numpy']:9.1f}" + "".join(native))
    return lines
