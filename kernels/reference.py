"""The reference backend: the meaning of each operation, in plain torch, float32. Nobody else imports torch.

Fixed order by construction: every operation runs on tensors of one fixed shape, whatever the step holds. Rows are
packed into tiles of TILE_ROWS (the last one padded with zeros) and a tile goes through norm, projections, rotary
embedding and MLP as [TILE_ROWS, …]; attention does the same (`reference_attention.py`). What a library makes of a
shape is then the same in every step, and the self-test shows that a row's place in the tile changes nothing.

Operations whose torch kernels treat a vector's tail otherwise than its body (F.silu, torch.sigmoid: measured, the two
differ in the last bit) are written with torch.exp, which does not. Sums go over the last, contiguous dimension of one
fixed length, and never over a whole tensor, whose partition would follow the thread count.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from kernels.backend import (
    DecoderParameters,
    DecoderShape,
    Floats,
    Integers,
    KVMemory,
    KVPair,
    LayerParameters,
    LinearProbe,
    StepBatch,
    StepOutput,
)
from kernels.block_digest import digest_blocks
from kernels.memory import copy_blocks
from kernels.numeric_environment import numeric_environment
from kernels.reference_attention import (
    GROUPS_PER_TILE,
    QUERIES_PER_GROUP,
    SPLIT_KEYS,
    AttentionPlan,
    attend,
)
from kernels.reference_sampling import draw_token
from kernels.rotary import rotary_tables
from kernels.sampling import Draw, DrawRow
from kernels.stored_tensor import StoredTensor

TILE_ROWS = 16
_SOURCES = (
    *("reference.py", "reference_attention.py", "reference_sampling.py"),
    *("philox.py", "rotary.py", "stored_tensor.py"),
)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's float32 weights, [outputs, inputs]; q, k, v fused, and gate and up."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class ReferenceBackend:
    """Plain torch on the CPU. See `Backend` for the interface."""

    name = "reference"
    dtype = "float32"
    kv_dtype = np.dtype(np.float32)

    def __init__(self, num_threads: int) -> None:
        self.set_num_threads(num_threads)

    def set_num_threads(self, num_threads: int) -> None:
        torch.set_num_threads(num_threads)

    @torch.inference_mode()
    def load(self, parameters: DecoderParameters, max_positions: int) -> None:
        self.shape = parameters.shape
        self.vocab_size = parameters.shape.vocab_size
        self.embedding = _tensor(parameters.embedding)
        is_tied = parameters.head is parameters.embedding
        self.head = self.embedding if is_tied else _tensor(parameters.head)
        self.final_norm = _tensor(parameters.final_norm)
        self.layers = [_fuse(layer) for layer in parameters.layers]
        cos, sin = rotary_tables(parameters.inverse_frequencies, max_positions)
        self.cos, self.sin = torch.from_numpy(cos), torch.from_numpy(sin)

    def kv_shape(self, num_blocks: int, block_size: int) -> tuple[int, ...]:
        """[layers, blocks, kv heads, block size, head dim]. The block past the last is never written: it stands in for
        what lies past a sequence's end."""
        shape = self.shape
        return (shape.num_layers, num_blocks + 1, shape.num_kv_heads, block_size, shape.head_dim)

    def copy_slot(self, keys: KVMemory, values: KVMemory, source: int, target: int) -> None:
        block_size = keys.shape[3]
        source_block, source_offset = divmod(source, block_size)
        target_block, target_offset = divmod(target, block_size)
        for memory in (keys, values):
            memory[:, target_block, :, target_offset] = memory[:, source_block, :, source_offset]

    def copy_blocks(
        self, source: KVPair, target: KVPair, source_blocks: Sequence[int], target_blocks: Sequence[int]
    ) -> None:
        for from_memory, to_memory in zip(source, target, strict=True):
            copy_blocks(from_memory, to_memory, source_blocks, target_blocks)

    def digest_blocks(self, memory: KVPair, blocks: Sequence[int]) -> list[int]:
        return digest_blocks(*memory, blocks)

    @torch.inference_mode()
    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        shape = self.shape
        num_rows = len(batch.token_ids)
        num_tiles = -(-num_rows // TILE_ROWS)
        block_size = keys.shape[3]
        keys[:, batch.fresh_blocks] = 0.0
        values[:, batch.fresh_blocks] = 0.0
        zero_row = num_tiles * TILE_ROWS
        plan = AttentionPlan.of(batch, shape, block_size, zero_block=keys.shape[1] - 1, zero_row=zero_row)
        slots = torch.from_numpy(_head_slots(batch.slot_mapping, shape.num_kv_heads, block_size))

        hidden = torch.zeros(num_tiles, TILE_ROWS, shape.hidden_size)
        hidden.view(-1, shape.hidden_size)[:num_rows] = self.embedding[torch.from_numpy(batch.token_ids)]
        cos, sin = self._rotary_tiles(batch.positions, num_tiles)
        queries = torch.zeros(zero_row + 1, shape.num_heads, shape.head_dim)
        new_keys = torch.zeros(num_tiles, TILE_ROWS, shape.num_kv_heads, shape.head_dim)
        new_values = torch.zeros_like(new_keys)
        attended = torch.zeros(num_tiles, TILE_ROWS, shape.num_heads * shape.head_dim)
        query_tiles = queries[:-1].view(num_tiles, TILE_ROWS, shape.num_heads, shape.head_dim)

        for layer, layer_keys, layer_values in zip(
            self.layers, torch.from_numpy(keys), torch.from_numpy(values), strict=True
        ):
            for tile in range(num_tiles):
                query_tiles[tile], new_keys[tile], new_values[tile] = project_qkv(
                    hidden[tile], layer, shape, cos[tile], sin[tile]
                )
            _write_kv(layer_keys, new_keys, slots, num_rows)
            _write_kv(layer_values, new_values, slots, num_rows)
            attend(plan, queries, layer_keys, layer_values, attended.view(-1, attended.shape[2])[:num_rows])
            for tile in range(num_tiles):
                hidden[tile] += F.linear(attended[tile], layer.o)
                hidden[tile] += gated_mlp(hidden[tile], layer, shape.norm_epsilon)
        return self._head(hidden.view(-1, shape.hidden_size)[torch.from_numpy(batch.logit_rows)])

    def draw(self, rows: Sequence[DrawRow]) -> list[Draw]:
        return [draw_token(logits, row) for logits, row in zip(self._logits, rows, strict=True)]

    def _rotary_tiles(self, positions: Integers, num_tiles: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Each row's cosines and sines, [num_tiles, TILE_ROWS, 1, head_dim / 2]; padding rows take position 0."""
        padded = torch.zeros(num_tiles * TILE_ROWS, dtype=torch.int64)
        padded[: len(positions)] = torch.from_numpy(positions)
        tiles = (num_tiles, TILE_ROWS, 1, self.shape.head_dim // 2)
        return self.cos[padded].view(tiles), self.sin[padded].view(tiles)

    def _head(self, rows: torch.Tensor) -> StepOutput:
        """Final norm and logits of `rows` [num_logits, hidden_size]."""
        num_logits = len(rows)
        hidden = torch.empty(num_logits, self.shape.hidden_size)
        logits = torch.empty(num_logits, self.shape.vocab_size)
        for start in range(0, num_logits, TILE_ROWS):
            end = min(start + TILE_ROWS, num_logits)
            normed = rms_norm(_padded(rows[start:end]), self.final_norm, self.shape.norm_epsilon)
            hidden[start:end] = normed[: end - start]
            logits[start:end] = F.linear(normed, self.head)[: end - start]
        self._logits = of_step = logits.numpy()
        return StepOutput(hidden.numpy(), lambda: of_step)

    def numerics(self) -> dict[str, str]:
        return {
            "backend": self.name,
            "dtype": self.dtype,
            "sources": _sources_digest(),
            "tile_rows": str(TILE_ROWS),
            "attention": f"{GROUPS_PER_TILE}x{QUERIES_PER_GROUP} queries, splits of {SPLIT_KEYS} keys",
            "torch": torch.__version__,
            "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "numeric_environment": numeric_environment(),
        }

    def linear_probes(self) -> list[LinearProbe]:
        layer = self.layers[0]
        probes: dict[torch.Size, LinearProbe] = {}
        for name, weight in (("qkv", layer.qkv), ("o", layer.o), ("gate_up", layer.gate_up), ("down", layer.down)):
            probes.setdefault(weight.shape, LinearProbe(name, weight.shape[1], _tiled_linear(weight)))
        return list(probes.values())


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """x [..., n] over its root mean square, times weight [n]. Source: Zhang and Sennrich, RMSNorm, 2019."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def project_qkv(
    hidden: torch.Tensor, layer: _Layer, shape: DecoderShape, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One tile's queries, keys (both rotated) and values, [TILE_ROWS, heads, head_dim] each."""
    normed = rms_norm(hidden, layer.attention_norm, shape.norm_epsilon)
    heads = F.linear(normed, layer.qkv, layer.qkv_bias).view(TILE_ROWS, -1, shape.head_dim)
    q, k, v = torch.split(heads, [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        q = rms_norm(q, layer.q_norm, shape.norm_epsilon)
        k = rms_norm(k, layer.k_norm, shape.norm_epsilon)
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x [rows, heads, head_dim], whose first half is paired with its second.

    cos, sin   [rows, 1, head_dim / 2]
    Source: Su et al., RoFormer, 2021, in the half-split form of GPT-NeoX.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def gated_mlp(hidden: torch.Tensor, layer: _Layer, epsilon: float) -> torch.Tensor:
    """down(silu(gate(x)) × up(x)) of one tile's normed rows. Source: Shazeer, GLU variants, 2020."""
    gate, up = F.linear(rms_norm(hidden, layer.mlp_norm, epsilon), layer.gate_up).chunk(2, dim=-1)
    return F.linear(gate / (1.0 + torch.exp(-gate)) * up, layer.down)


def _fuse(layer: LayerParameters) -> _Layer:
    return _Layer(
        attention_norm=_tensor(layer.attention_norm),
        qkv=torch.cat([_tensor(layer.q), _tensor(layer.k), _tensor(layer.v)]),
        qkv_bias=_fused_bias(layer),
        q_norm=_optional(layer.q_norm),
        k_norm=_optional(layer.k_norm),
        o=_tensor(layer.o),
        mlp_norm=_tensor(layer.mlp_norm),
        gate_up=torch.cat([_tensor(layer.gate), _tensor(layer.up)]),
        down=_tensor(layer.down),
    )


def _fused_bias(layer: LayerParameters) -> torch.Tensor | None:
    if layer.q_bias is None or layer.k_bias is None or layer.v_bias is None:
        return None
    return torch.cat([_tensor(layer.q_bias), _tensor(layer.k_bias), _tensor(layer.v_bias)])


def _optional(tensor: StoredTensor | None) -> torch.Tensor | None:
    return None if tensor is None else _tensor(tensor)


def _tensor(stored: StoredTensor) -> torch.Tensor:
    return torch.from_numpy(stored.float32())


def _padded(rows: torch.Tensor) -> torch.Tensor:
    """Up to TILE_ROWS rows as a tile of their own, zeros below them."""
    tile = torch.zeros(TILE_ROWS, rows.shape[1])
    tile[: len(rows)] = rows
    return tile


def _head_slots(slot_mapping: Integers, num_kv_heads: int, block_size: int) -> Integers:
    """Where each (row, kv head) lies in a layer's memory seen as [blocks × kv heads × block size, head_dim]."""
    blocks, offsets = slot_mapping // block_size, slot_mapping % block_size
    heads = np.arange(num_kv_heads)
    slots: Integers = ((blocks[:, None] * num_kv_heads + heads) * block_size + offsets[:, None]).reshape(-1)
    return slots


def _write_kv(layer_memory: torch.Tensor, tiles: torch.Tensor, slots: torch.Tensor, num_rows: int) -> None:
    """Store the first `num_rows` rows of `tiles` [num_tiles, TILE_ROWS, kv heads, head_dim] in their slots."""
    head_dim = layer_memory.shape[-1]
    rows = tiles.view(-1, *tiles.shape[2:])[:num_rows]
    layer_memory.view(-1, head_dim).index_copy_(0, slots, rows.reshape(-1, head_dim))


def _tiled_linear(weight: torch.Tensor) -> Callable[[Floats], Floats]:
    def apply(rows: Floats) -> Floats:
        pieces = torch.split(torch.from_numpy(rows), TILE_ROWS)
        result: Floats = torch.cat([F.linear(_padded(piece), weight)[: len(piece)] for piece in pieces]).numpy()
        return result

    return apply


def _sources_digest() -> str:
    """Digest of the files that define this backend's arithmetic."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()
