"""The reference backend's operations against float64 written out, and its padding."""

import dataclasses

import numpy as np
import pytest
import torch

from engine.execution.rotary import inverse_frequencies
from kernels.backend import DecoderParameters, DecoderShape, LayerParameters
from kernels.packing import SequenceRows, pack_batch
from kernels.reference import ReferenceBackend
from kernels.reference_attention import attend
from kernels.reference_attention_plan import AttentionPlan
from kernels.reference_layer import rms_norm, rotate
from kernels.rotary import rotary_tables
from kernels.selftest import hashed_rows as hashed_numbers
from kernels.stored_tensor import StoredTensor

SHAPE = DecoderShape(
    num_layers=1,
    hidden_size=24,
    intermediate_size=40,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=50,
    norm_epsilon=1e-5,
)


def hashed_rows(num_rows: int, length: int) -> torch.Tensor:
    return torch.from_numpy(hashed_numbers(num_rows, length))


def test_rms_norm_is_the_formula() -> None:
    x, weight = hashed_rows(16, 40), hashed_rows(1, 40)[0]
    x64 = x.double()
    expected = x64 / (x64.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(rms_norm(x, weight, 1e-5).double(), expected, rtol=0, atol=1e-6)  # float32 rounding


def test_rotating_turns_each_pair_by_position_times_frequency() -> None:
    frequencies = (1.0, 0.1, 0.01, 0.001)
    cos, sin = (torch.from_numpy(table) for table in rotary_tables(frequencies, 300))
    x = hashed_rows(2, 8).view(2, 1, 8)
    positions = torch.tensor([0, 299])
    rotated = rotate(x, cos[positions][:, None], sin[positions][:, None])
    assert torch.equal(rotated[0], x[0])
    pairs = torch.complex(x[1, 0, :4].double(), x[1, 0, 4:].double())
    turned = pairs * torch.exp(1j * 299 * torch.tensor(frequencies, dtype=torch.float64))
    expected = torch.cat([turned.real, turned.imag])
    torch.testing.assert_close(rotated[1, 0].double(), expected, rtol=0, atol=1e-6)


def test_the_tables_have_the_bits_of_torchs_own_cosines() -> None:
    """Two libraries' float64 differ in the last bits at most, which float32 does not keep."""
    frequencies = tuple(inverse_frequencies(100_000.0, 64))
    cos, sin = rotary_tables(frequencies, 8192)
    angles = torch.arange(8192, dtype=torch.float64)[:, None] * torch.tensor(frequencies, dtype=torch.float64)
    assert np.array_equal(cos, torch.cos(angles).float())
    assert np.array_equal(sin, torch.sin(angles).float())


@pytest.mark.parametrize(
    ("block_size", "window"),
    [(1, 0), (5, 0), (16, 0), (48, 0), (256, 0), (300, 0), (5, 1), (16, 3), (16, 254), (48, 300)],
)
def test_attention_is_softmax_over_the_keys_up_to_the_query(block_size: int, window: int) -> None:
    """Ragged sequences, several splits, every kind of block; windows that begin within a group of queries.

    Tolerance: scores reach 20, which float32 rounds by 1e-6, and so their exponentials; values reach 3.
    """
    pieces = [(0, 1), (3, 1), (250, 9), (511, 2), (600, 1), (0, 70)]  # positions start …, so many rows
    blocks_each = -(-700 // block_size)
    sequences = [
        SequenceRows([0] * count, start, range(index * blocks_each, (index + 1) * blocks_each), 0)
        for index, (start, count) in enumerate(pieces)
    ]
    num_blocks = blocks_each * len(pieces)
    batch = pack_batch(sequences, block_size)
    num_rows, head_dim = len(batch.token_ids), SHAPE.head_dim
    memory = hashed_rows(2 * (num_blocks + 1) * SHAPE.num_kv_heads * block_size, head_dim) * 3
    keys, values = memory.view(2, num_blocks + 1, SHAPE.num_kv_heads, block_size, head_dim)
    queries = torch.cat([hashed_rows(num_rows * 6, head_dim) * 3, torch.zeros(6, head_dim)]).view(-1, 6, head_dim)
    attended = torch.zeros(num_rows, 6 * head_dim)
    plan = AttentionPlan.of(batch, SHAPE, block_size, zero_block=num_blocks, zero_row=num_rows, window=window)
    attend(plan, queries, keys, values, attended)
    row = 0
    for sequence, (start, count) in zip(sequences, pieces, strict=True):
        for position in range(start, start + count):
            first = max(0, position + 1 - window) if window else 0
            expected = plain_attention(
                queries[row], keys, values, sequence.block_table, first, position + 1, block_size
            )
            torch.testing.assert_close(attended[row].double(), expected, rtol=0, atol=1e-5)
            row += 1


def plain_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: object, first: int, end: int, block_size: int
) -> torch.Tensor:
    """One query [heads, head_dim] over the slots first … end-1 of a block table, in float64."""
    slots = torch.arange(first, end)
    blocks = torch.tensor(list(table))[slots // block_size]  # type: ignore[call-overload]
    k, v = (memory[blocks, :, slots % block_size].double().repeat_interleave(3, dim=1) for memory in (keys, values))
    weights = (torch.einsum("hd,nhd->hn", query.double(), k) / SHAPE.head_dim**0.5).softmax(-1)
    return torch.einsum("hn,nhd->hd", weights, v).flatten()


def stored(*shape: int) -> StoredTensor:
    values = hashed_numbers(shape[0], shape[1] if len(shape) > 1 else 1).reshape(-1, shape[-1])
    return StoredTensor("F32", shape, np.ascontiguousarray(values).view(np.uint8))


@pytest.fixture
def parameters() -> DecoderParameters:
    layer = LayerParameters(
        attention_norm=stored(24),
        q=stored(48, 24),
        k=stored(16, 24),
        v=stored(16, 24),
        o=stored(24, 48),
        mlp_norm=stored(24),
        gate=stored(40, 24),
        up=stored(40, 24),
        down=stored(24, 40),
    )
    embedding = stored(50, 24)
    return DecoderParameters(SHAPE, embedding, (layer,), stored(24), embedding, (1.0, 0.1, 0.01, 0.001))


def test_a_tied_head_takes_no_memory_of_its_own(parameters: DecoderParameters) -> None:
    backend = ReferenceBackend(1)
    backend.load(parameters, 64)
    assert backend.head is backend.embedding
    backend.load(dataclasses.replace(parameters, head=stored(50, 24)), 64)
    assert backend.head is not backend.embedding


def test_only_planned_slots_are_written_and_fresh_blocks_are_cleared(parameters: DecoderParameters) -> None:
    backend = ReferenceBackend(1)
    backend.load(parameters, 64)
    keys, values = (np.full(backend.kv_shape(5, 4), 9.0, np.float32) for _ in range(2))
    keys[:, -1] = values[:, -1] = 0.0
    backend.forward(pack_batch([SequenceRows([1, 2], 3, (2, 4), 1)], 4), keys, values)
    for memory in (keys, values):
        slots = memory[0].swapaxes(1, 2).reshape(6 * 4, -1)
        untouched = [slot for slot in range(20) if slot not in (11, 16, 17, 18, 19)]
        assert (slots[untouched] == 9.0).all()
        assert (slots[[11, 16]] != 9.0).all()  # position 3 is block 2's last slot, position 4 block 4's first
        assert (slots[[17, 18, 19]] == 0.0).all()  # block 4 begins in this step
        assert (slots[20:] == 0.0).all()  # the block of zeros


def test_no_row_without_logits_wanted_reaches_the_head(parameters: DecoderParameters) -> None:
    backend = ReferenceBackend(1)
    backend.load(parameters, 64)
    keys, values = (np.zeros(backend.kv_shape(5, 4), np.float32) for _ in range(2))
    rows = [SequenceRows([1, 2, 3], 0, (0,), 0), SequenceRows([4, 5, 6], 0, (1,), 2), SequenceRows([7], 0, (2,), 1)]
    output = backend.forward(pack_batch(rows, 4), keys, values)
    assert output.hidden.shape == (3, 24)
    assert output.logits.shape == (3, 50)
