"""The matrices of a Llama's layer, of a decoder's shape. It must not know what lies in them, nor where."""

from collections.abc import Callable

import torch

from kernels.cuda.decoder_weights import LayerWeights
from kernels.cuda.weights import Weight
from kernels.decoder import DecoderShape


def shaped_layer(shape: DecoderShape, norm: torch.Tensor, matrix: Callable[[int, int], Weight]) -> LayerWeights:
    """norm: [hidden], of both norms; matrix(outputs, inputs) makes each."""
    hidden, mlp = shape.hidden_size, shape.intermediate_size
    q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    return LayerWeights(
        attention_norm=norm,
        qkv=matrix(q_size + 2 * kv_size, hidden),
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        o=matrix(hidden, q_size),
        mlp_norm=norm,
        gate_up=matrix(2 * mlp, hidden),
        down=matrix(hidden, mlp),
    )
