"""What a decoder is: the figures of its shape, and its weights as they lie in their file.

One description for every architecture that is served: a backend reads it, and says in advance what of it it cannot
compute. It must not know architectures' names, files or steps.
"""

from dataclasses import dataclass
from typing import Literal

from kernels.stored_tensor import StoredTensor


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """A decoder: RMSNorm, rotary embedding over whole heads (first half, second half), gated MLP.

    The fields with a default are the Llama family's where they keep it; Gemma 3 sets all of them.

    activation        of the gate: "silu", or "gelu_tanh" (GELU by its tanh formula)
    has_post_norms    what attention and MLP give is normed before it is added to the residual
    embedding_scale   what an embedding's numbers are multiplied by
    attention_scale   what scores are multiplied by; 0: 1 / sqrt(head_dim)
    window            keys that a query of a local layer sees, itself the last of them; 0: there are no local layers
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_epsilon: float
    activation: Literal["silu", "gelu_tanh"] = "silu"
    has_post_norms: bool = False
    embedding_scale: float = 1.0
    attention_scale: float = 0.0
    window: int = 0

    @property
    def beyond_llama(self) -> tuple[str, ...]:
        """What a backend made for the Llama family alone cannot compute, in words; empty: nothing."""
        claims = {
            f"{self.activation} activation": self.activation != "silu",
            "norms after attention and MLP": self.has_post_norms,
            "scaled embeddings": self.embedding_scale != 1.0,
            "attention scale of its own": self.attention_scale != 0.0,
            f"sliding windows of {self.window} keys": self.window > 0,
        }
        return tuple([claim for claim, holds in claims.items() if holds])


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """One layer. Matrices are [outputs, inputs]; biases, per-head q/k norms and post norms where the model has them.

    is_local   its queries see the shape's window, and it is rotated by the local frequencies
    """

    attention_norm: StoredTensor
    q: StoredTensor
    k: StoredTensor
    v: StoredTensor
    o: StoredTensor
    mlp_norm: StoredTensor
    gate: StoredTensor
    up: StoredTensor
    down: StoredTensor
    q_bias: StoredTensor | None = None
    k_bias: StoredTensor | None = None
    v_bias: StoredTensor | None = None
    q_norm: StoredTensor | None = None
    k_norm: StoredTensor | None = None
    post_attention_norm: StoredTensor | None = None
    post_mlp_norm: StoredTensor | None = None
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class DecoderParameters:
    """
    head                  the very object `embedding` when the two are tied
    inverse_frequencies         head_dim / 2 rotary frequencies in radians per position, scaling applied
    local_inverse_frequencies   the same of the local layers; empty where the model has none
    """

    shape: DecoderShape
    embedding: StoredTensor
    layers: tuple[LayerParameters, ...]
    final_norm: StoredTensor
    head: StoredTensor
    inverse_frequencies: tuple[float, ...]
    local_inverse_frequencies: tuple[float, ...] = ()
