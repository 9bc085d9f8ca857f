"""Paged attention of the reference backend, in tiles of one fixed shape and splits of a fixed number of keys.

    keys of a sequence   |  split 0: 0 … 255  |  split 1: 256 … 511  |  …       ascending, merged in this order
    queries              |0 1 2 3|4 5 6 7|8 …    groups of four, by position: a query's place in its group is fixed

A tile is GROUPS_PER_TILE groups of any sequences. For each split a tile gathers its groups' keys and values out of
their blocks and does two matrix products of one fixed shape; the partial results (maximum, sum, weighted values) are
merged into the running ones. A group whose keys end before the split keeps what it has, untouched. So a query's bits
depend on its own keys and values alone; which tile it is in, and beside whom, changes nothing.

With a window, a query sees the last `window` keys alone. Its first split then follows from its own position: the
running results begin at nothing (-inf, 0, 0), every split is merged into them, and a query without keys in one keeps
what it has.

Source: Milakov and Gimelshein, online softmax, 2018; Kwon et al., PagedAttention, SOSP 2023.
"""

import torch

from kernels.reference_attention_plan import GROUPS_PER_TILE, QUERIES_PER_GROUP, SPLIT_KEYS, AttentionPlan, Tile

_LOWEST_EXPONENT = -87.0  # exp of less is subnormal, for which MKL takes a slow path (measured 4 times slower)


def attend(
    plan: AttentionPlan, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, attended: torch.Tensor
) -> None:
    """Write softmax(q·kᵀ × scale)·v of each row into `attended`; the scale is the shape's, or 1/√head_dim.

    queries        [rows padded to tiles + 1, num_heads, head_dim] float32, the last row zero
    keys, values   one layer's memory [blocks, kv heads, block size, head_dim] float32, this step's rows included
    attended       [num_rows, num_heads × head_dim] float32
    """
    for tile in plan.tiles:
        result = _attend_tile(plan, tile, queries, keys, values)
        attended.index_copy_(0, tile.real_rows, result.index_select(0, tile.real))


def _attend_tile(
    plan: AttentionPlan, tile: Tile, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """One tile's results [groups × queries, num_heads × head_dim]."""
    shape = plan.shape
    kv_heads, per_kv = shape.num_kv_heads, shape.num_heads // shape.num_kv_heads
    by_kv_head = (GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP * per_kv)
    q = queries.index_select(0, tile.query_rows).mul_(shape.attention_scale or shape.head_dim**-0.5)
    q = q.view(GROUPS_PER_TILE, QUERIES_PER_GROUP, kv_heads, per_kv * shape.head_dim).transpose(1, 2)
    q = q.reshape(GROUPS_PER_TILE * kv_heads, QUERIES_PER_GROUP * per_kv, shape.head_dim)

    highest = total = mixed = torch.empty(0)
    if plan.window:
        highest = torch.full((GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP, per_kv, 1), -torch.inf)
        total, mixed = torch.zeros(*by_kv_head, 1), torch.zeros(*by_kv_head, shape.head_dim)
    for index, split in enumerate(tile.splits):
        is_first = index == 0 and not plan.window
        split_keys = _gather(keys, split.units, plan.unit)
        scores = torch.bmm(q, split_keys.transpose(1, 2))
        scores = scores.view(GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP, per_kv, SPLIT_KEYS)
        scores += split.bias
        split_highest = scores.amax(-1, keepdim=True)
        new_highest = split_highest if is_first else torch.maximum(highest, split_highest)
        weights = scores.sub_(new_highest).clamp_(min=_LOWEST_EXPONENT).exp_().mul_(split.visible)
        split_total = weights.sum(-1, keepdim=True).view(*by_kv_head, 1)
        split_mixed = torch.bmm(
            weights.view(-1, QUERIES_PER_GROUP * per_kv, SPLIT_KEYS), _gather(values, split.units, plan.unit)
        ).view(*by_kv_head, shape.head_dim)
        if is_first:
            highest, total, mixed = new_highest, split_total, split_mixed
            continue
        shrink = torch.exp((highest - new_highest).clamp_(min=_LOWEST_EXPONENT)).view(*by_kv_head, 1)
        highest = new_highest  # unchanged for a group or query without keys here: all its scores are -inf
        total = _merged(total, shrink, split_total, split.is_active)
        mixed = _merged(mixed, shrink, split_mixed, split.is_active)
    result = (mixed / total).view(GROUPS_PER_TILE, kv_heads, QUERIES_PER_GROUP, per_kv * shape.head_dim)
    return result.transpose(1, 2).reshape(GROUPS_PER_TILE * QUERIES_PER_GROUP, shape.num_heads * shape.head_dim)


def _merged(
    running: torch.Tensor, shrink: torch.Tensor, partial: torch.Tensor, is_active: torch.Tensor | None
) -> torch.Tensor:
    merged = running * shrink + partial
    return merged if is_active is None else torch.where(is_active, merged, running)


def _gather(memory: torch.Tensor, units: torch.Tensor, unit: int) -> torch.Tensor:
    """A split's keys or values out of their blocks: [groups × kv heads, SPLIT_KEYS, head_dim], contiguous."""
    head_dim = memory.shape[-1]
    return memory.view(-1, unit * head_dim).index_select(0, units).view(-1, SPLIT_KEYS, head_dim)
