"""Sequences of known keys and values scattered over blocks, and what attention makes of any of their rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from kernels.backend import StepBatch
from kernels.cuda.attention import attend
from kernels.cuda.attention_plan import AttentionShape, Plan, PlanArrays, Sharing, plan_of

TOKENS = (530, 300)  # of each sequence: three splits, the last of one block and two slots; two splits
SHAPE = AttentionShape(num_heads=6, num_kv_heads=2, head_dim=32, block_size=16)
NUM_BLOCKS = 60
TOGETHER = Sharing(num_programs=2, max_partials=0)  # every group's splits in one program
SPREAD = Sharing(num_programs=1000, max_partials=64)  # every split a program's

Numbers = list[torch.Tensor]


class Rows(NamedTuple):
    """Positions begin … end-1 of a sequence."""

    sequence: int
    begin: int
    end: int


class World:
    """Keys and values lie in blocks drawn by `seed`; what no token owns is NaN where it can be."""

    def __init__(self, seed: int = 1, kind: torch.dtype = torch.bfloat16, window: int = 0) -> None:
        generator = torch.Generator().manual_seed(7)
        kv_size, q_size = (SHAPE.num_kv_heads, SHAPE.head_dim), (SHAPE.num_heads, SHAPE.head_dim)
        self.window = window
        self.queries, self.keys, self.values = (
            [torch.randn(count, *size, generator=generator).bfloat16() for count in TOKENS]
            for size in (q_size, kv_size, kv_size)
        )
        if kind == torch.uint8:
            self.keys, self.values = (
                [part.float().to(torch.float8_e4m3fn) for part in parts] for parts in (self.keys, self.values)
            )
        self.tables = self._scatter(seed, kind)

    def _scatter(self, seed: int, kind: torch.dtype) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        blocks = np.random.default_rng(seed).permutation(NUM_BLOCKS)
        shape = (NUM_BLOCKS + 1, SHAPE.num_kv_heads, SHAPE.block_size, SHAPE.head_dim)
        unowned = 0x7F if kind == torch.uint8 else torch.nan
        self.pools = [torch.full(shape, unowned, dtype=kind) for _ in range(2)]
        tables, used = [], 0
        for sequence, count in enumerate(TOKENS):
            table = blocks[used : used + -(-count // SHAPE.block_size)]
            used += len(table)
            tables.append(table)
            positions = np.arange(count)
            where = (torch.from_numpy(table[positions // SHAPE.block_size]), slice(None))
            offsets = torch.from_numpy(positions % SHAPE.block_size)
            for pool, parts in zip(self.pools, (self.keys, self.values), strict=True):
                pool[where[0], :, offsets] = parts[sequence].view(kind)
        return tables

    def plan(self, rows: Sequence[Rows], sharing: Sharing, *, has_wide: bool = False) -> PlanArrays:
        counts = [part.end - part.begin for part in rows]
        width = max(len(table) for table in self.tables)
        tables = np.full((len(rows), width), -1, dtype=np.int64)
        for line, part in zip(tables, rows, strict=True):
            num_blocks = -(-part.end // SHAPE.block_size)
            line[:num_blocks] = self.tables[part.sequence][:num_blocks]
        empty = np.zeros(0, dtype=np.int64)
        starts = np.cumsum([0, *counts])
        lengths = np.array([part.end for part in rows])
        batch = StepBatch(empty, empty, empty, starts, lengths, tables, empty, empty)
        return plan_of(batch, SHAPE, sharing, has_wide=has_wide)

    def attended(
        self, rows: Sequence[Rows], sharing: Sharing = TOGETHER, padding: int = 0, *, has_wide: bool = False
    ) -> Numbers:
        """Of each of `rows` of one step, float32 [tokens, heads × head dim]; NaN where nothing was written."""
        return self.run(rows, self.plan(rows, sharing, has_wide=has_wide), sharing, padding)

    def run(self, rows: Sequence[Rows], arrays: PlanArrays, sharing: Sharing, padding: int = 0) -> Numbers:
        counts = [part.end - part.begin for part in rows]
        queries = torch.cat([self.queries[part.sequence][part.begin : part.end] for part in rows])
        queries = torch.cat((queries, torch.full((padding, *queries.shape[1:]), torch.nan).bfloat16()))
        num_rows = len(queries)
        plan = Plan.room(
            SHAPE, sharing, max_rows=num_rows, max_sequences=len(rows), max_blocks=NUM_BLOCKS, device="cpu"
        )
        plan = replace(plan, has_wide=bool(arrays.counts[2]))
        plan.put(arrays)
        out = torch.full((num_rows, SHAPE.num_heads * SHAPE.head_dim), torch.nan)  # bfloat16 would hide bits
        few = 3  # programs in place of a device's many: the work is dealt out the same way
        keys, values = self.pools
        attend(queries, keys, values, replace(plan, num_programs=few), out, window=self.window)
        return list(torch.split(out, [*counts, padding] if padding else counts))

    def exact(self, part: Rows) -> torch.Tensor:
        """The same in float64, from the very numbers in memory."""
        positions = torch.arange(part.begin, part.end)
        q = self.queries[part.sequence][part.begin : part.end].double()
        per_kv = SHAPE.num_heads // SHAPE.num_kv_heads
        k, v = (
            parts[part.sequence][: part.end].to(torch.float32).double().repeat_interleave(per_kv, dim=1)
            for parts in (self.keys, self.values)
        )
        scores = torch.einsum("qhd,khd->hqk", q, k) * SHAPE.head_dim**-0.5
        slots = torch.arange(part.end)
        is_seen = slots <= positions[:, None]
        if self.window:
            is_seen &= slots > positions[:, None] - self.window
        weights = scores.masked_fill(~is_seen, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v).flatten(1)
