"""Steps run on a backend without core and runner: rows in, logits out, in a KV memory of the test's own."""

from collections.abc import Iterable, Sequence

import numpy as np

from kernels.backend import Backend, Floats, StepOutput
from kernels.packing import SequenceRows, pack_batch


class Memory:
    """KV memory; `step` runs one step in it."""

    def __init__(self, backend: Backend, num_blocks: int, block_size: int = 16) -> None:
        self.backend = backend
        self.block_size = block_size
        self.keys, self.values = backend.new_kv(num_blocks, block_size)

    def step(self, *rows: SequenceRows) -> StepOutput:
        """In memory of its own: the backend's is written anew by the next step."""
        output = self.backend.forward(pack_batch(rows, self.block_size), self.keys, self.values)
        logits = output.logits.copy()
        return StepOutput(output.hidden.copy(), lambda: logits)


class Story:
    """Known tokens and the blocks they go to."""

    def __init__(self, tokens: Sequence[int], blocks: Iterable[int]) -> None:
        self.tokens = tokens
        self.blocks = tuple(blocks)

    def rows(self, start: int, end: int, num_logits: int = 0) -> SequenceRows:
        return SequenceRows(self.tokens[start:end], start, self.blocks, num_logits)


def logits_in_chunks(memory: Memory, story: Story, ends: Iterable[int], first_wanted: int) -> Floats:
    """Logits of the rows from `first_wanted` on, the sequence computed up to each of `ends` in turn."""
    logits, start = [], 0
    for end in ends:
        wanted = max(0, end - max(start, first_wanted))
        logits.append(memory.step(story.rows(start, end, wanted)).logits)
        start = end
    return np.concatenate(logits)


def assert_same_bits(expected: Floats, actual: Floats, *, at_least: int = 100_000) -> None:
    """Bit for bit, over so many float32 values that a path which is nearly invariant is found out."""
    assert expected.dtype == actual.dtype == np.float32
    assert expected.shape == actual.shape
    assert expected.size >= at_least
    num_different = int((expected.view(np.int32) != actual.view(np.int32)).sum())
    assert num_different == 0, f"{num_different} of {expected.size} values differ"
