"""AVX-512, AVX2 and the portable library give the same bits: a whole step on small models of every kind.

Two steps of mixed prefill and decode over a split's end, in every weight format, head size and type of KV memory.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from kernels.backend import DecoderParameters, DecoderShape, StepOutput
from kernels.packing import SequenceRows
from kernels.sampling import Draw, DrawParameters, DrawRow
from tests.execution.steps import Memory, Story
from tests.kernels.cpu_library import instruction_sets, loaded
from tests.kernels.tiny_models import FORMATS, GEMMA, SMALL, random_parameters

if len(instruction_sets()) < 2:
    pytest.skip("only the portable library runs on this processor: nothing to compare", allow_module_level=True)

LENGTH = 270


def outputs(parameters: DecoderParameters, instruction_set: str, dtype: str) -> list[tuple[StepOutput, list[Draw]]]:
    backend = loaded(parameters, dtype=dtype, instruction_set=instruction_set)
    vocab_size = parameters.shape.vocab_size
    memory = Memory(backend, 40)
    mine = Story([position * 31 % vocab_size for position in range(LENGTH)], range(20))
    other = Story([position * 17 % vocab_size for position in range(LENGTH)], range(20, 40))

    def step(*rows: SequenceRows) -> tuple[StepOutput, list[Draw]]:
        return memory.step(*rows), backend.draw(alternating(sum(sequence.num_logits for sequence in rows)))

    steps = [
        step(mine.rows(0, 250, 60), other.rows(0, 5, 1)),
        step(other.rows(5, 6, 1), mine.rows(250, LENGTH, 20)),
        step(mine.rows(LENGTH - 1, LENGTH, 1)),
    ]
    backend.close()
    return steps


def alternating(count: int) -> Sequence[DrawRow]:
    """Greedy draws and others."""
    kinds = DrawParameters(temperature=0.0), DrawParameters(top_p=0.9, num_logprobs=3)
    return [DrawRow(kinds[position % 2], position) for position in range(count)]


def assert_all_agree(parameters: DecoderParameters, dtype: str = "auto") -> None:
    first, *others = instruction_sets()
    expected = outputs(parameters, first, dtype)
    assert all(np.isfinite(step.logits).all() for step, _ in expected)
    for other in others:
        for (ours, draws), (theirs, other_draws) in zip(expected, outputs(parameters, other, dtype), strict=True):
            for name in ("hidden", "logits"):
                bits, other_bits = (getattr(step, name).view(np.int32) for step in (ours, theirs))
                num_different = int((bits != other_bits).sum())
                assert num_different == 0, f"{other}: {num_different} of {bits.size} values of {name} differ"
            assert draws == other_draws


@pytest.mark.parametrize("format", FORMATS)
def test_every_weight_format_has_the_same_bits(format: str) -> None:
    assert_all_agree(random_parameters(format))


@pytest.mark.parametrize("head_dim", [16, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_head_size_has_the_same_bits(head_dim: int, dtype: str) -> None:
    shape = dataclasses.replace(SMALL, head_dim=head_dim, num_heads=4, num_kv_heads=2, num_layers=1)
    assert_all_agree(random_parameters("Q8_0", shape, has_bias=True), dtype)


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (5, 1), (7, 1), (14, 2), (16, 1), (3, 3)])
def test_every_query_group_has_the_same_bits(num_heads: int, num_kv_heads: int) -> None:
    shape = dataclasses.replace(SMALL, head_dim=32, num_heads=num_heads, num_kv_heads=num_kv_heads, num_layers=1)
    assert_all_agree(random_parameters("Q4_0", shape, has_norms=True))


@pytest.mark.parametrize("window", [1, 5, 100])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_local_layers_have_the_same_bits(window: int, dtype: str) -> None:
    shape = dataclasses.replace(GEMMA, window=window, head_dim=256)
    assert_all_agree(random_parameters("Q5_0", shape, has_norms=True), dtype)


def test_sizes_that_fill_no_vector_have_the_same_bits() -> None:
    shape = DecoderShape(
        num_layers=2,
        hidden_size=90,
        intermediate_size=75,
        num_heads=3,
        num_kv_heads=1,
        head_dim=16,
        vocab_size=101,
        norm_epsilon=1e-6,
    )
    assert_all_agree(random_parameters("BF16", shape))
