"""What lies between the qkv projection and attention, for each row: q/k norm, rotation, and the KV write.

One program takes a few heads of one row, whole: a head's norm sums over its own numbers, in one tree. Keys and values
go straight into their slots, in the type of the KV memory (`kv_number.py`); queries come out as bfloat16. A padding row
writes into the spare block, the pool's last, which nobody reads.

Reference: `reference_layer.rms_norm` and `rotate`. Source: Su et al., RoFormer, 2021, in the half-split form of
GPT-NeoX; Kwon et al., PagedAttention, SOSP 2023, section 4.
"""

import torch
import triton
import triton.language as tl

from kernels.cuda.kv_number import stored_number
from kernels.cuda.launch import Variant, launch, power_of_two

_HEADS = 8  # of one program


def rotary_write(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    epsilon: float,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> None:
    """Norm, rotate and store one step's rows.

    qkv              float32 [rows, (heads + 2 × kv heads) × head dim]
    positions        int32 [rows]
    slots            int64 [rows]: block_id × block size + offset; of a padding row, in the spare block
    cos, sin         float32 [positions, head dim / 2]
    q_norm, k_norm   float32 [head dim]: weights of the norm of each head before it is rotated; both or neither
    queries          out, bfloat16 [rows, heads, head dim]
    keys, values     one layer's memory [blocks, kv heads, block size, head dim], bfloat16 or the uint8 of e4m3
    """
    rows, num_heads, head_dim = queries.shape
    _, num_kv_heads, block_size, _ = keys.shape
    launch(
        _rotary_write,
        (rows, triton.cdiv(num_heads + 2 * num_kv_heads, _HEADS)),
        *(qkv, positions, slots, cos, sin, q_norm, k_norm, queries, keys, values, epsilon),
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HALF=head_dim // 2,
        BLOCK_SIZE=block_size,
        HEADS=_HEADS,
        HALF_TILE=power_of_two(head_dim // 2),
    )


@triton.jit
def _rotary_write(
    qkv: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    q_norm: tl.tensor,
    k_norm: tl.tensor,
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    epsilon: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    HALF_TILE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    columns = tl.arange(0, HALF_TILE)[None, :]
    inside = columns < HALF
    is_query = heads < NUM_HEADS
    is_key = (heads >= NUM_HEADS) & (heads < NUM_HEADS + NUM_KV_HEADS)
    is_value = (heads >= NUM_HEADS + NUM_KV_HEADS) & (heads < NUM_HEADS + 2 * NUM_KV_HEADS)

    source = qkv + row * ((NUM_HEADS + 2 * NUM_KV_HEADS) * (2 * HALF)) + heads * (2 * HALF) + columns
    real = (heads < NUM_HEADS + 2 * NUM_KV_HEADS) & inside
    first = tl.load(source, mask=real, other=0.0)
    second = tl.load(source + HALF, mask=real, other=0.0)
    if q_norm is not None:
        mean = tl.div_rn(tl.sum(first * first + second * second, axis=1), 2.0 * HALF)
        root = tl.div_rn(1.0, tl.sqrt_rn(mean + epsilon))[:, None]
        q_first, q_second = _halves(q_norm, columns, inside, HALF)
        k_first, k_second = _halves(k_norm, columns, inside, HALF)
        first = tl.where(is_value, first, first * root * tl.where(is_query, q_first, k_first))
        second = tl.where(is_value, second, second * root * tl.where(is_query, q_second, k_second))

    angle = tl.load(positions + row).to(tl.int64) * HALF
    c = tl.load(cos + angle + columns, mask=inside, other=0.0)
    s = tl.load(sin + angle + columns, mask=inside, other=0.0)
    rotated_first = tl.where(is_value, first, first * c - second * s)
    rotated_second = tl.where(is_value, second, second * c + first * s)

    query = queries + row * (NUM_HEADS * 2 * HALF) + heads * (2 * HALF) + columns
    tl.store(query, rotated_first.to(tl.bfloat16), mask=is_query & inside)
    tl.store(query + HALF, rotated_second.to(tl.bfloat16), mask=is_query & inside)

    slot = tl.load(slots + row)
    kv_head = tl.where(is_value, heads - (NUM_HEADS + NUM_KV_HEADS), heads - NUM_HEADS)
    line = (slot // BLOCK_SIZE * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + slot % BLOCK_SIZE
    place = line * (2 * HALF) + columns
    kind: tl.constexpr = keys.dtype.element_ty
    stored_first, stored_second = stored_number(rotated_first, kind), stored_number(rotated_second, kind)
    tl.store(keys + place, stored_first, mask=is_key & inside)
    tl.store(keys + place + HALF, stored_second, mask=is_key & inside)
    tl.store(values + place, stored_first, mask=is_value & inside)
    tl.store(values + place + HALF, stored_second, mask=is_value & inside)


@triton.jit
def _halves(weight: tl.tensor, columns: tl.tensor, inside: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    """Both halves of a norm's weight, [1, HALF_TILE] each."""
    return tl.load(weight + columns, mask=inside, other=0.0), tl.load(weight + HALF + columns, mask=inside, other=0.0)


def _variant(heads: int, kv_heads: int, head_dim: int, kind: str, has_norm: bool) -> Variant:
    norms = {"q_norm": "*fp32", "k_norm": "*fp32"}
    signature = {"qkv": "*fp32", "positions": "*i32", "slots": "*i64", "cos": "*fp32", "sin": "*fp32"}
    memory = {"queries": "*bf16", "keys": f"*{kind}", "values": f"*{kind}", "epsilon": "fp32"}
    constants = {
        "NUM_HEADS": heads,
        "NUM_KV_HEADS": kv_heads,
        "HALF": head_dim // 2,
        "BLOCK_SIZE": 16,
        "HEADS": _HEADS,
        "HALF_TILE": power_of_two(head_dim // 2),
    }
    return Variant(
        f"rotary_write {heads}/{kv_heads} heads of {head_dim}, {kind}{', normed' if has_norm else ''}",
        _rotary_write,
        {**signature, **(norms if has_norm else {}), **memory},
        {**constants, **({} if has_norm else dict.fromkeys(norms))},
    )


VARIANTS = (
    _variant(9, 3, 64, "bf16", has_norm=False),
    _variant(32, 8, 128, "bf16", has_norm=True),
    _variant(16, 8, 256, "bf16", has_norm=True),
    _variant(32, 8, 128, "u8", has_norm=False),
)
