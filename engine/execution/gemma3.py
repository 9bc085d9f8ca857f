"""What Gemma 3's metadata leave to be known: the same of a GGUF file and of a Hugging Face folder.

Source: Gemma Team, Gemma 3 technical report, 2025; Gemma3ForCausalLM of transformers; llama.cpp's gemma3.
"""

import numpy as np

from engine.core.errors import ModelError
from kernels.stored_tensor import StoredTensor

LOCAL_ROPE_BASE = 10_000.0
LAYERS_PER_GLOBAL = 6  # five local layers, then one that sees everything
_LAYERS_OF_27B = 62  # the one size whose query scale is not 1 / sqrt(head_dim)


def local_layers(num_layers: int, layers_per_global: int = LAYERS_PER_GLOBAL) -> tuple[bool, ...]:
    """Whether each layer sees the window alone: all but every `layers_per_global`-th."""
    return tuple([bool((index + 1) % layers_per_global) for index in range(num_layers)])


def embedding_scale(hidden_size: int, stored_format: str) -> float:
    """sqrt(hidden_size), rounded as the model was trained: to the type that its embedding is kept in.

    The released models are bfloat16, where 640 gives 25.25 and not 25.298; a GGUF file, in whatever format, is made of
    them. Only a float32 or float16 folder says that it means these types.
    """
    exact = np.float32(hidden_size**0.5)
    if stored_format == "F32":
        return float(exact)
    if stored_format == "F16":
        return float(np.float16(exact))
    bits = int(exact.view(np.uint32))
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000  # to nearest, ties to even
    return float(np.uint32(rounded).view(np.float32))


def attention_scale(query_pre_attn_scalar: float, head_dim: int) -> float:
    """1 / sqrt(scalar); 0, which stands for 1 / sqrt(head_dim), where the two are one."""
    if query_pre_attn_scalar <= 0:
        raise ModelError(f"query_pre_attn_scalar is {query_pre_attn_scalar}: a number above 0 is needed")
    return 0.0 if query_pre_attn_scalar == head_dim else float(query_pre_attn_scalar) ** -0.5


def query_scalar_by_size(num_layers: int, hidden_size: int, num_heads: int, head_dim: int) -> float:
    """What a GGUF file does not say, by the model's size."""
    return hidden_size / num_heads if num_layers == _LAYERS_OF_27B else head_dim


def plus_one(norm: StoredTensor) -> StoredTensor:
    """A norm's weight as it is applied: folders keep it less 1, GGUF files do not."""
    weight = np.float32(1.0) + norm.float32()
    return StoredTensor("F32", norm.shape, weight.reshape(1, -1).view(np.uint8))
