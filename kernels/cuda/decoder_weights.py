"""A model's weights on the device, packed once: what each launch of a step reads.

q, k and v are one matrix, and gate and up another, so that a layer is four matrix products. It must not know steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.cuda.weights import Weight, pack
from kernels.decoder import DecoderParameters, LayerParameters
from kernels.rotary import rotary_tables
from kernels.stored_tensor import StoredTensor

MATRICES = ("qkv", "o", "gate_up", "down")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Norms and biases are float32.

    is_local   its queries see a window of keys, and it is rotated by the local tables
    """

    attention_norm: torch.Tensor
    qkv: Weight
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: Weight
    mlp_norm: torch.Tensor
    gate_up: Weight
    down: Weight
    post_attention_norm: torch.Tensor | None = None
    post_mlp_norm: torch.Tensor | None = None
    is_local: bool = False


class Tables(NamedTuple):
    """Of the rotary embedding: float32 [positions, head dim / 2] each."""

    cos: torch.Tensor
    sin: torch.Tensor


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """
    embedding, head   the same numbers where the two are tied
    local_rotary      of the local layers; the very tables of the others where the model has none
    """

    embedding: Weight
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: Weight
    rotary: Tables
    local_rotary: Tables

    def matrices(self) -> list[Weight]:
        """What matrix products read: each layer's four, then the head."""
        return [*(getattr(layer, name) for layer in self.layers for name in MATRICES), self.head]

    def with_matrices(self, matrices: Sequence[Weight]) -> "DecoderWeights":
        """The same with others in their places, in the order of `matrices`."""
        others = iter(matrices)
        layers = tuple(
            [
                replace(layer, qkv=next(others), o=next(others), gate_up=next(others), down=next(others))
                for layer in self.layers
            ]
        )
        return replace(self, layers=layers, head=next(others))


def to_device(parameters: DecoderParameters, max_positions: int, device: torch.device) -> DecoderWeights:
    """Raises torch.OutOfMemoryError."""
    embedding = pack([parameters.embedding], device)
    is_tied = parameters.head is parameters.embedding
    rotary = _tables(parameters.inverse_frequencies, max_positions, device)
    local = parameters.local_inverse_frequencies
    return DecoderWeights(
        embedding,
        tuple([_layer(layer, device) for layer in parameters.layers]),
        _vector([parameters.final_norm], device),
        embedding if is_tied else pack([parameters.head], device),
        rotary,
        _tables(local, max_positions, device) if local else rotary,
    )


def _tables(inverse_frequencies: tuple[float, ...], max_positions: int, device: torch.device) -> Tables:
    return Tables(*(_on(device, table) for table in rotary_tables(inverse_frequencies, max_positions)))


def _layer(layer: LayerParameters, device: torch.device) -> LayerWeights:
    return LayerWeights(
        _vector([layer.attention_norm], device),
        pack([layer.q, layer.k, layer.v], device),
        _optional([layer.q_bias, layer.k_bias, layer.v_bias], device),
        _optional([layer.q_norm], device),
        _optional([layer.k_norm], device),
        pack([layer.o], device),
        _vector([layer.mlp_norm], device),
        pack([layer.gate, layer.up], device),
        pack([layer.down], device),
        _optional([layer.post_attention_norm], device),
        _optional([layer.post_mlp_norm], device),
        layer.is_local,
    )


def _optional(stored: Sequence[StoredTensor | None], device: torch.device) -> torch.Tensor | None:
    present = [each for each in stored if each is not None]
    return _vector(present, device) if len(present) == len(stored) else None


def _vector(stored: Sequence[StoredTensor], device: torch.device) -> torch.Tensor:
    return _on(device, np.concatenate([each.float32() for each in stored]))


def _on(device: torch.device, numbers: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(device)
