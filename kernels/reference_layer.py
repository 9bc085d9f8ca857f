"""One decoder layer of the reference backend, on one tile of rows: its weights, and what each operation means.

`reference.py` says why every operation runs on tiles of one fixed shape. It must not know steps, blocks or sequences.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernels.decoder import DecoderShape, LayerParameters
from kernels.stored_tensor import StoredTensor

TILE_ROWS = 16

Watch = Callable[[str, torch.Tensor], None]  # told of an operation's result [TILE_ROWS, …] before it is read


@dataclass(frozen=True, slots=True)
class Layer:
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
    post_attention_norm: torch.Tensor | None
    post_mlp_norm: torch.Tensor | None
    is_local: bool


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """x [..., n] over its root mean square, times weight [n]. Source: Zhang and Sennrich, RMSNorm, 2019."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def project_qkv(
    hidden: torch.Tensor, layer: Layer, shape: DecoderShape, cos: torch.Tensor, sin: torch.Tensor, watch: Watch
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One tile's queries, keys (both rotated) and values, [TILE_ROWS, heads, head_dim] each."""
    normed = rms_norm(hidden, layer.attention_norm, shape.norm_epsilon)
    watch("attention_norm", normed)
    heads = F.linear(normed, layer.qkv, layer.qkv_bias).view(TILE_ROWS, -1, shape.head_dim)
    q, k, v = torch.split(heads, [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
    for name, projected in (("q", q), ("k", k), ("v", v)):
        watch(name, projected)
    if layer.q_norm is not None and layer.k_norm is not None:
        q = rms_norm(q, layer.q_norm, shape.norm_epsilon)
        k = rms_norm(k, layer.k_norm, shape.norm_epsilon)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    watch("rotary_q", q)
    watch("rotary_k", k)
    return q, k, v


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x [rows, heads, head_dim], whose first half is paired with its second.

    cos, sin   [rows, 1, head_dim / 2]
    Source: Su et al., RoFormer, 2021, in the half-split form of GPT-NeoX.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def gated_mlp(hidden: torch.Tensor, layer: Layer, shape: DecoderShape, watch: Watch) -> torch.Tensor:
    """down(activation(gate(x)) × up(x)) of one tile's normed rows. Source: Shazeer, GLU variants, 2020."""
    normed = rms_norm(hidden, layer.mlp_norm, shape.norm_epsilon)
    watch("mlp_norm", normed)
    gate, up = F.linear(normed, layer.gate_up).chunk(2, dim=-1)
    watch("gate", gate)
    watch("up", up)
    activated = _ACTIVATIONS[shape.activation](gate) * up
    watch("activation", activated)
    return F.linear(activated, layer.down)


def silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1.0 + torch.exp(-x))


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """GELU by its tanh formula, (1 + tanh(u)) / 2 being the sigmoid of 2u. Source: Hendrycks and Gimpel, 2016."""
    twice_u = (x + 0.044715 * (x * x * x)) * math.sqrt(8.0 / math.pi)
    return x / (1.0 + torch.exp(-twice_u))


_ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def add_attended(hidden: torch.Tensor, attended: torch.Tensor, layer: Layer, shape: DecoderShape, watch: Watch) -> None:
    """One tile's attention projected and added to its rows, in place."""
    projected = F.linear(attended, layer.o)
    watch("o", projected)
    hidden += _post_normed(projected, layer.post_attention_norm, shape)
    watch("attention_residual", hidden)


def add_mlp(hidden: torch.Tensor, layer: Layer, shape: DecoderShape, watch: Watch) -> None:
    """One tile's MLP added to its rows, in place."""
    mlp = gated_mlp(hidden, layer, shape, watch)
    watch("down", mlp)
    hidden += _post_normed(mlp, layer.post_mlp_norm, shape)
    watch("mlp_residual", hidden)


def _post_normed(added: torch.Tensor, weight: torch.Tensor | None, shape: DecoderShape) -> torch.Tensor:
    return added if weight is None else rms_norm(added, weight, shape.norm_epsilon)


def unwatched(operation: str, result: torch.Tensor) -> None:
    """The Watch of a step that nobody looks into."""


def fuse_layer(layer: LayerParameters) -> Layer:
    return Layer(
        attention_norm=stored_as_float(layer.attention_norm),
        qkv=torch.cat([stored_as_float(layer.q), stored_as_float(layer.k), stored_as_float(layer.v)]),
        qkv_bias=_fused_bias(layer),
        q_norm=_optional(layer.q_norm),
        k_norm=_optional(layer.k_norm),
        o=stored_as_float(layer.o),
        mlp_norm=stored_as_float(layer.mlp_norm),
        gate_up=torch.cat([stored_as_float(layer.gate), stored_as_float(layer.up)]),
        down=stored_as_float(layer.down),
        post_attention_norm=_optional(layer.post_attention_norm),
        post_mlp_norm=_optional(layer.post_mlp_norm),
        is_local=layer.is_local,
    )


def _fused_bias(layer: LayerParameters) -> torch.Tensor | None:
    if layer.q_bias is None or layer.k_bias is None or layer.v_bias is None:
        return None
    return torch.cat([stored_as_float(layer.q_bias), stored_as_float(layer.k_bias), stored_as_float(layer.v_bias)])


def _optional(tensor: StoredTensor | None) -> torch.Tensor | None:
    return None if tensor is None else stored_as_float(tensor)


def stored_as_float(stored: StoredTensor) -> torch.Tensor:
    return torch.from_numpy(stored.float32())
