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
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from kernels import memory
from kernels.backend import (
    DecoderParameters,
    Floats,
    Integers,
    KVMemory,
    KVPair,
    KVRows,
    LinearProbe,
    StepBatch,
    StepOutput,
)
from kernels.block_digest import digest_blocks
from kernels.numeric_environment import numeric_environment
from kernels.reference_attention import attend
from kernels.reference_attention_plan import GROUPS_PER_TILE, QUERIES_PER_GROUP, SPLIT_KEYS, AttentionPlan
from kernels.reference_layer import (
    TILE_ROWS,
    Watch,
    add_attended,
    add_mlp,
    fuse_layer,
    project_qkv,
    rms_norm,
    stored_as_float,
    unwatched,
)
from kernels.reference_sampling import draw_token
from kernels.reference_scoring import score_rows
from kernels.rotary import rotary_tables
from kernels.sampling import Draw, DrawRow
from kernels.scoring import RowScores
from kernels.slots import plain_places, read, write
from kernels.trace import OUTSIDE_LAYERS, Tap, show_slots

_SOURCES = (
    *("reference.py", "reference_layer.py", "reference_attention.py", "reference_attention_plan.py"),
    *("reference_sampling.py", "reference_scoring.py", "philox.py", "rotary.py", "stored_tensor.py"),
)

_Tables = tuple[torch.Tensor, torch.Tensor]  # cosines, sines


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
        self.embedding = stored_as_float(parameters.embedding)
        is_tied = parameters.head is parameters.embedding
        self.head = self.embedding if is_tied else stored_as_float(parameters.head)
        self.final_norm = stored_as_float(parameters.final_norm)
        self.layers = [fuse_layer(layer) for layer in parameters.layers]
        self.rotary = _torch_tables(parameters.inverse_frequencies, max_positions)
        local = parameters.local_inverse_frequencies
        self.local_rotary = _torch_tables(local, max_positions) if local else self.rotary

    def kv_shape(self, num_blocks: int, block_size: int) -> tuple[int, ...]:
        """[layers, blocks, kv heads, block size, head dim]. The block past the last is never written: it stands in for
        what lies past a sequence's end."""
        shape = self.shape
        return (shape.num_layers, num_blocks + 1, shape.num_kv_heads, block_size, shape.head_dim)

    def new_kv(self, num_blocks: int, block_size: int) -> KVPair:
        return memory.new_kv(self.kv_shape(num_blocks, block_size), self.kv_dtype)

    def new_host_kv(self, num_blocks: int, block_size: int) -> KVPair:
        return memory.new_host_kv(self.kv_shape(num_blocks, block_size), self.kv_dtype, num_blocks)

    def read_slots(self, memory: KVPair, slots: Integers) -> KVRows:
        return read((plain_places(memory[0], slots), plain_places(memory[1], slots)))

    def write_slots(self, memory: KVPair, slots: Integers, rows: KVRows) -> None:
        write((plain_places(memory[0], slots), plain_places(memory[1], slots)), rows)

    def copy_blocks(
        self, source: KVPair, target: KVPair, source_blocks: Sequence[int], target_blocks: Sequence[int]
    ) -> None:
        for from_memory, to_memory in zip(source, target, strict=True):
            memory.copy_blocks(from_memory, to_memory, source_blocks, target_blocks)

    def digest_blocks(self, memory: KVPair, blocks: Sequence[int]) -> list[int]:
        return digest_blocks(*memory, blocks)

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        return self._forward(batch, keys, values, None)

    def forward_traced(self, batch: StepBatch, keys: KVMemory, values: KVMemory, tap: Tap) -> StepOutput:
        return self._forward(batch, keys, values, tap)

    @torch.inference_mode()
    def _forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory, tap: Tap | None) -> StepOutput:
        shape = self.shape
        num_rows = len(batch.token_ids)
        num_tiles = -(-num_rows // TILE_ROWS)
        block_size = keys.shape[3]
        keys[:, batch.fresh_blocks] = 0.0
        values[:, batch.fresh_blocks] = 0.0
        zero_row = num_tiles * TILE_ROWS
        zeros = {"zero_block": keys.shape[1] - 1, "zero_row": zero_row}
        plan = local_plan = AttentionPlan.of(batch, shape, block_size, **zeros)
        if shape.window:
            local_plan = AttentionPlan.of(batch, shape, block_size, window=shape.window, **zeros)
        slots = torch.from_numpy(_head_slots(batch.slot_mapping, shape.num_kv_heads, block_size))

        hidden = torch.zeros(num_tiles, TILE_ROWS, shape.hidden_size)
        embedded = self.embedding[torch.from_numpy(batch.token_ids)]
        hidden.view(-1, shape.hidden_size)[:num_rows] = embedded * shape.embedding_scale
        angles = self._rotary_tiles(self.rotary, batch.positions, num_tiles)
        local_angles = self._rotary_tiles(self.local_rotary, batch.positions, num_tiles)
        queries = torch.zeros(zero_row + 1, shape.num_heads, shape.head_dim)
        new_keys = torch.zeros(num_tiles, TILE_ROWS, shape.num_kv_heads, shape.head_dim)
        new_values = torch.zeros_like(new_keys)
        attended = torch.zeros(num_tiles, TILE_ROWS, shape.num_heads * shape.head_dim)
        query_tiles = queries[:-1].view(num_tiles, TILE_ROWS, shape.num_heads, shape.head_dim)

        for tile in range(num_tiles):
            _watch(tap, OUTSIDE_LAYERS, tile, num_rows)("embedding", hidden[tile])
        for index, layer in enumerate(self.layers):
            layer_memory = keys[index : index + 1], values[index : index + 1]
            layer_keys, layer_values = (torch.from_numpy(part[0]) for part in layer_memory)
            watches = [_watch(tap, index, tile, num_rows) for tile in range(num_tiles)]
            cos, sin = local_angles if layer.is_local else angles
            for tile, watch in enumerate(watches):
                query_tiles[tile], new_keys[tile], new_values[tile] = project_qkv(
                    hidden[tile], layer, shape, cos[tile], sin[tile], watch
                )
            _write_kv(layer_keys, new_keys, slots, num_rows)
            _write_kv(layer_values, new_values, slots, num_rows)
            if tap is not None:
                show_slots(self, tap, index, layer_memory, batch.slot_mapping)
            of_layer = local_plan if layer.is_local else plan
            attend(of_layer, queries, layer_keys, layer_values, attended.view(-1, attended.shape[2])[:num_rows])
            for tile, watch in enumerate(watches):
                watch("attention", attended[tile])
                add_attended(hidden[tile], attended[tile], layer, shape, watch)
                add_mlp(hidden[tile], layer, shape, watch)
        self._rows = hidden.view(-1, shape.hidden_size)
        return self._head(self._rows[torch.from_numpy(batch.logit_rows)], batch, tap)

    def draw(self, rows: Sequence[DrawRow]) -> list[Draw]:
        return [draw_token(logits, row) for logits, row in zip(self._logits, rows, strict=True)]

    @torch.inference_mode()
    def score(self, rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
        scores = RowScores.empty(len(rows), num_top)
        for start in range(0, len(rows), TILE_ROWS):
            part = slice(start, start + TILE_ROWS)
            of_part = self._rows[torch.from_numpy(rows[part])]
            logits = F.linear(rms_norm(_padded(of_part), self.final_norm, self.shape.norm_epsilon), self.head)
            scores.put(start, score_rows(logits[: len(of_part)].numpy(), token_ids[part], num_top))
        return scores

    def _rotary_tiles(self, tables: _Tables, positions: Integers, num_tiles: int) -> _Tables:
        """Each row's cosines and sines, [num_tiles, TILE_ROWS, 1, head_dim / 2]; padding rows take position 0."""
        padded = torch.zeros(num_tiles * TILE_ROWS, dtype=torch.int64)
        padded[: len(positions)] = torch.from_numpy(positions)
        tiles = (num_tiles, TILE_ROWS, 1, self.shape.head_dim // 2)
        return tables[0][padded].view(tiles), tables[1][padded].view(tiles)

    def _head(self, rows: torch.Tensor, batch: StepBatch, tap: Tap | None) -> StepOutput:
        """Final norm and logits of `rows` [num_logits, hidden_size]."""
        num_logits = len(rows)
        hidden = torch.empty(num_logits, self.shape.hidden_size)
        logits = torch.empty(num_logits, self.shape.vocab_size)
        for start in range(0, num_logits, TILE_ROWS):
            end = min(start + TILE_ROWS, num_logits)
            watch = _watch_rows(tap, OUTSIDE_LAYERS, batch.logit_rows[start:end])
            normed = rms_norm(_padded(rows[start:end]), self.final_norm, self.shape.norm_epsilon)
            watch("final_norm", normed)
            hidden[start:end] = normed[: end - start]
            of_tile = F.linear(normed, self.head)
            watch("head", of_tile)
            logits[start:end] = of_tile[: end - start]
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


def _torch_tables(inverse_frequencies: tuple[float, ...], max_positions: int) -> _Tables:
    cos, sin = rotary_tables(inverse_frequencies, max_positions)
    return torch.from_numpy(cos), torch.from_numpy(sin)


def _watch(tap: Tap | None, layer: int, tile: int, num_rows: int) -> Watch:
    """Of a tile's real rows."""
    if tap is None:
        return unwatched
    return _watch_rows(tap, layer, np.arange(tile * TILE_ROWS, min(num_rows, (tile + 1) * TILE_ROWS)))


def _watch_rows(tap: Tap | None, layer: int, rows: Integers) -> Watch:
    if tap is None:
        return unwatched
    count = len(rows)
    return lambda operation, result: tap(layer, operation, rows, result.numpy()[:count].reshape(count, -1))


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
