"""On the native backend a row's bits depend on its own tokens alone, in every weight format.

Small random models, float32 logits compared bit for bit: 2,100 tokens, the last 100 rows, which lie in the eighth and
ninth split of attention (2,048 is on both sides). The same model is run alone in one piece, in chunks, decoded, in
company, in other blocks, on a prefix that another request wrote, preempted and recomputed, on one thread, and out of
memory that is not aligned; a control with one early token changed must differ.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from kernels import memory as kernel_memory
from kernels.backend import Floats
from kernels.cpu.backend import CpuBackend
from kernels.packing import SequenceRows
from tests.execution.steps import Memory, Story, assert_same_bits, logits_in_chunks
from tests.kernels.cpu_library import instruction_sets, loaded
from tests.kernels.tiny_models import FORMATS, GEMMA, SMALL, random_parameters

instruction_sets()  # skips all of this where the library is not built

LENGTH = 2100
FIRST_WANTED = 2000
PREEMPTED_AT = 2050
NUM_BLOCKS = 300
BLOCKS = range(132)


def random_tokens(seed: int, count: int = LENGTH) -> list[int]:
    tokens: list[int] = np.random.default_rng(seed).integers(0, SMALL.vocab_size, count).tolist()
    return tokens


class Case:
    """A backend, a sequence, and the logits of its last rows when it is computed alone in one piece."""

    def __init__(self, backend: CpuBackend) -> None:
        self.backend = backend
        self.story = Story(random_tokens(1), BLOCKS)
        self.expected = logits_in_chunks(self.memory(), self.story, [LENGTH], FIRST_WANTED)

    def memory(self) -> Memory:
        return Memory(self.backend, NUM_BLOCKS)

    def in_chunks(self, ends: list[int], story: Story | None = None, memory: Memory | None = None) -> Floats:
        return logits_in_chunks(memory or self.memory(), story or self.story, ends, FIRST_WANTED)


# Q4_0, Q5_0, F16 and F32 share all but their loads with Q4_1, Q8_0 and BF16.
CASES = [
    *[
        pytest.param(format, marks=[pytest.mark.slow] if format in ("Q4_0", "Q5_0", "F16", "F32") else [])
        for format in FORMATS
    ],
    "Q4_1 with float32 keys and values",
    "Q5_0 with local layers",
]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    format, _, rest = str(request.param).partition(" ")
    shape = GEMMA if "local" in rest else SMALL
    parameters = random_parameters(format, shape, has_norms=shape is GEMMA)
    backend = loaded(parameters, dtype="float32" if "float32" in rest else "auto")
    yield Case(backend)
    backend.close()


@pytest.mark.parametrize("chunk", [7, 33, 64, 97])
def test_chunks_of_a_prefill_change_no_bit(case: Case, chunk: int) -> None:
    assert_same_bits(case.expected, case.in_chunks([*range(chunk, LENGTH, chunk), LENGTH]))


def test_decoded_rows_are_the_prefilled_rows(case: Case) -> None:
    assert_same_bits(case.expected, case.in_chunks([FIRST_WANTED, *range(FIRST_WANTED + 1, LENGTH + 1)]))


def test_company_changes_no_bit(case: Case) -> None:
    """Decoded among 0 … 63 other sequences, some of which compute chunks of their prompts."""
    memory = case.memory()
    memory.step(case.story.rows(0, FIRST_WANTED))
    others = [Story(random_tokens(2 + index, 48), (140 + 2 * index, 141 + 2 * index)) for index in range(63)]
    logits = []
    for position in range(FIRST_WANTED, LENGTH):
        number = position * 13 % 64
        rows: list[SequenceRows] = []
        for index, other in enumerate(others[:number]):
            start = (position + index) % 20
            rows.append(other.rows(start, start + 1 + 4 * (index % 5 == 0), 0))
        before = position * 7 % (number + 1)
        logits.append(memory.step(*rows[:before], case.story.rows(position, position + 1, 1), *rows[before:]).logits)
    assert_same_bits(case.expected, np.concatenate(logits))


def old_contents(memory: Memory) -> tuple[float, float]:
    """nan and infinity, in bfloat16 their bits."""
    return (np.nan, np.inf) if memory.keys.dtype == np.float32 else (0x7FC0, 0x7F80)


def test_a_prefix_in_another_requests_blocks_and_old_contents_change_no_bit(case: Case) -> None:
    memory = case.memory()
    memory.keys[:], memory.values[:] = old_contents(memory)
    other = Story(case.story.tokens, [block * 7 % NUM_BLOCKS for block in range(132)])
    memory.step(other.rows(0, 1600))
    free = [block for block in reversed(range(NUM_BLOCKS)) if block not in other.blocks[:100]]
    mine = Story(case.story.tokens, [*other.blocks[:100], *free])
    memory.step(mine.rows(1600, FIRST_WANTED))
    assert_same_bits(case.expected, memory.step(mine.rows(FIRST_WANTED, LENGTH, LENGTH - FIRST_WANTED)).logits)


def test_preempted_and_recomputed_rows_have_the_same_bits(case: Case) -> None:
    """Decoded to 2,050, its blocks lost, the 2,050 recomputed as one prefill elsewhere, decoded on."""
    first = case.in_chunks([FIRST_WANTED, *range(FIRST_WANTED + 1, PREEMPTED_AT + 1)])
    memory = case.memory()
    elsewhere = Story(case.story.tokens, [NUM_BLOCKS - 1 - block for block in range(132)])
    memory.step(elsewhere.rows(0, PREEMPTED_AT))
    rest = [memory.step(elsewhere.rows(position, position + 1, 1)).logits for position in range(PREEMPTED_AT, LENGTH)]
    assert_same_bits(case.expected, np.concatenate([first, *rest]))


def test_one_thread_gives_the_bits_of_two(case: Case) -> None:
    """On two threads a single long sequence is split over them, on one it is not."""
    case.backend.set_num_threads(1)
    try:
        assert_same_bits(case.expected, case.in_chunks([1000, FIRST_WANTED, *range(FIRST_WANTED + 1, LENGTH + 1)]))
    finally:
        case.backend.set_num_threads(2)


@pytest.mark.parametrize("block_size", [5, 48, 256])
def test_the_size_of_blocks_changes_no_bit(case: Case, block_size: int) -> None:
    memory = Memory(case.backend, LENGTH // block_size + 1, block_size)
    story = Story(case.story.tokens, reversed(range(LENGTH // block_size + 1)))
    assert_same_bits(case.expected, case.in_chunks([LENGTH - 50, LENGTH], story, memory))


def test_memory_that_is_not_aligned_changes_no_bit(case: Case) -> None:
    memory = case.memory()
    for name in ("keys", "values"):
        aligned = getattr(memory, name)
        unaligned = kernel_memory.zeros((aligned.size + 3,), aligned.dtype)[3:]
        setattr(memory, name, unaligned.reshape(aligned.shape))
    assert_same_bits(case.expected, case.in_chunks([LENGTH], memory=memory))


def test_an_early_token_changed_changes_every_row(case: Case) -> None:
    """The control: the comparisons above can fail."""
    tokens = list(case.story.tokens)
    tokens[3] = (tokens[3] + 1) % SMALL.vocab_size
    changed = case.in_chunks([LENGTH], Story(tokens, BLOCKS))
    assert (changed != case.expected).any(axis=1).all()
