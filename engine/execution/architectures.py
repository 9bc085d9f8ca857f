"""Which architectures are served, what sets each apart, and the figures that a model's metadata give.

It must not know files, keys or tensors' names.
"""

from dataclasses import dataclass
from typing import Literal

from engine.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class Architecture:
    """
    has_qkv_bias       q, k and v projections add a bias
    has_qk_norm        queries and keys are normed per head before the rotary embedding
    gguf_interleaves   its GGUF files hold q and k rows in the order of the interleaved rotary embedding
    has_post_norms     what attention and MLP give is normed before it is added
    has_local_layers   most layers see a window of keys and have rotary frequencies of their own
    activation         of the MLP's gate
    """

    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    gguf_interleaves: bool = False
    has_post_norms: bool = False
    has_local_layers: bool = False
    activation: Literal["silu", "gelu_tanh"] = "silu"


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(gguf_interleaves=True),  # Llama 2 and 3, SmolLM2; in GGUF files Mistral too
    "mistral": Architecture(),
    "qwen2": Architecture(has_qkv_bias=True),
    "qwen3": Architecture(has_qk_norm=True),
    "gemma3": Architecture(has_qk_norm=True, has_post_norms=True, has_local_layers=True, activation="gelu_tanh"),
}


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What a model's metadata says, whatever file it stood in.

    inverse_frequencies         rotary frequencies in radians per position, scaling applied
    local_inverse_frequencies   the same of the local layers
    local_layers                whether each layer is one; empty: none is
    window                      keys that a query of theirs sees
    embedding_scale, attention_scale   as `DecoderShape` has them
    """

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_epsilon: float
    inverse_frequencies: tuple[float, ...]
    context_length: int
    has_tied_head: bool
    local_inverse_frequencies: tuple[float, ...] = ()
    local_layers: tuple[bool, ...] = ()
    window: int = 0
    embedding_scale: float = 1.0
    attention_scale: float = 0.0

    @property
    def traits(self) -> Architecture:
        return ARCHITECTURES[self.architecture]

    @property
    def activation(self) -> Literal["silu", "gelu_tanh"]:
        return self.traits.activation

    @property
    def has_post_norms(self) -> bool:
        return self.traits.has_post_norms

    def is_local(self, layer: int) -> bool:
        return bool(self.local_layers) and self.local_layers[layer]


def require_architecture(name: str) -> None:
    """Raises ModelError unless `name` is served."""
    if name not in ARCHITECTURES:
        raise ModelError(f"architecture {name!r} is not supported: serve a model of one of {', '.join(ARCHITECTURES)}")
