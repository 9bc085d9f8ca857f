"""Rotation and the KV write in the interpreter: right against float64, in its slot, and nowhere else."""

import pytest
import torch

from kernels.cuda.rotary_kv import rotary_write
from kernels.rotary import rotary_tables

NUM_BLOCKS, BLOCK_SIZE, EPSILON = 5, 4, 1e-6
HEADS, KV_HEADS = 6, 2


class Case:
    """Random rows, their positions and slots, and all that is written."""

    def __init__(self, rows: int, head_dim: int, kind: torch.dtype = torch.bfloat16) -> None:
        generator = torch.Generator().manual_seed(head_dim)
        self.qkv = torch.randn(rows, (HEADS + 2 * KV_HEADS) * head_dim, generator=generator)
        self.positions = torch.randint(0, 300, (rows,), generator=generator, dtype=torch.int32)
        self.slots = torch.randperm(NUM_BLOCKS * BLOCK_SIZE, generator=generator)[:rows]
        frequencies = tuple(10000.0 ** (-2 * i / head_dim) for i in range(head_dim // 2))
        self.cos, self.sin = (torch.from_numpy(table) for table in rotary_tables(frequencies, 300))
        self.norms = [1 + torch.randn(head_dim, generator=generator) / 4 for _ in range(2)]
        self.queries = torch.empty(rows, HEADS, head_dim, dtype=torch.bfloat16)
        self.keys = torch.zeros(NUM_BLOCKS + 1, KV_HEADS, BLOCK_SIZE, head_dim, dtype=kind)
        self.values = torch.zeros_like(self.keys)

    def write(self, has_norm: bool = False, row: int | None = None) -> None:
        rows = slice(None) if row is None else slice(row, row + 1)
        q_norm, k_norm = self.norms if has_norm else (None, None)
        qkv, positions, slots = (part[rows].clone() for part in (self.qkv, self.positions, self.slots))
        queries = torch.empty_like(self.queries[rows])
        rotary_write(
            qkv, positions, slots, self.cos, self.sin, q_norm, k_norm, EPSILON, queries, self.keys, self.values
        )
        self.queries[rows] = queries

    def exact(self, has_norm: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values in float64, [rows, heads, head dim]."""
        head_dim = self.queries.shape[-1]
        heads = self.qkv.double().view(len(self.qkv), -1, head_dim)
        q, k, v = torch.split(heads, [HEADS, KV_HEADS, KV_HEADS], dim=1)
        if has_norm:
            q, k = (
                x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt() * norm.double()
                for x, norm in zip((q, k), self.norms, strict=True)
            )
        cos, sin = (table[self.positions.long(), None].double() for table in (self.cos, self.sin))
        return self._rotated(q, cos, sin), self._rotated(k, cos, sin), v

    @staticmethod
    def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def written(self, memory: torch.Tensor) -> torch.Tensor:
        return memory[self.slots // BLOCK_SIZE, :, self.slots % BLOCK_SIZE]


def _close(found: torch.Tensor, exact: torch.Tensor, relative: float = 2.0**-8) -> bool:
    return torch.allclose(found.double(), exact, rtol=relative, atol=1e-6)


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("head_dim", [32, 80])
def test_rows_are_rotated_and_stored_as_float64_says(head_dim: int, has_norm: bool) -> None:
    case = Case(7, head_dim)
    case.write(has_norm)
    queries, keys, values = case.exact(has_norm)
    assert _close(case.queries, queries)
    assert _close(case.written(case.keys), keys)
    assert _close(case.written(case.values), values)


def test_nothing_but_the_rows_slots_is_written() -> None:
    case = Case(7, 32)
    case.keys.fill_(5.0)
    case.write()
    case.keys[case.slots // BLOCK_SIZE, :, case.slots % BLOCK_SIZE] = 5.0
    assert bool((case.keys == 5.0).all())


def test_a_row_alone_has_the_bits_it_has_in_company() -> None:
    together, alone = Case(7, 32), Case(7, 32)
    together.write(has_norm=True)
    for row in range(7):
        alone.write(has_norm=True, row=row)
    assert torch.equal(alone.queries, together.queries)
    assert torch.equal(alone.keys, together.keys)
    assert torch.equal(alone.values, together.values)


def test_padding_rows_touch_the_spare_block_alone() -> None:
    case = Case(7, 32)
    case.qkv[3:] = 0.0
    case.slots[3:] = NUM_BLOCKS * BLOCK_SIZE
    real = case.slots[:3]
    case.write()
    case.keys[real // BLOCK_SIZE, :, real % BLOCK_SIZE] = 0.0
    assert not case.keys.any()


def test_e4m3_is_what_torch_makes_of_the_number() -> None:
    wide, narrow = Case(7, 32, torch.float32), Case(7, 32, torch.uint8)
    for case in (wide, narrow):
        case.qkv[0] *= 1000.0  # beyond its range
        case.qkv[1] *= 0.002  # subnormal
        case.write()
    expected = wide.written(wide.keys).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    assert torch.equal(narrow.written(narrow.keys), expected)
