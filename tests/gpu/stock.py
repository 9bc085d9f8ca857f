"""The same decoder in stock torch: the library's matrix products and attention, as fast as they come.

What our kernels are compared with to know what invariance costs: cuBLAS and scaled_dot_product_attention choose by the
batch, so a row's bits follow its company. Weights are bfloat16 on a device, dequantised once or the very tensors that
our backend reads; keys and values lie in one piece for each sequence, which spares it the paging that serving needs. It
is no backend, and nothing serves by it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.backend import DecoderParameters, DecoderShape
from kernels.reference_layer import rotate
from kernels.rotary import rotary_tables
from kernels.stored_tensor import StoredTensor

if TYPE_CHECKING:
    from kernels.cuda.decoder_weights import DecoderWeights
    from kernels.cuda.weights import Weight


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights, [outputs, inputs]; q, k, v in one, and gate and up."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class StockWeights:
    """cos, sin   float32 [positions, head dim / 2]"""

    embedding: Tensor
    layers: list[_Layer]
    final_norm: Tensor
    head: Tensor
    cos: Tensor
    sin: Tensor

    @classmethod
    def of(
        cls, parameters: DecoderParameters, max_length: int, device: torch.device, dtype: torch.dtype
    ) -> "StockWeights":
        assert not parameters.shape.beyond_llama, "a Llama-family decoder"

        def matrix(*stored: StoredTensor | None) -> Tensor:
            parts = [torch.from_numpy(each.float32()).to(device, dtype) for each in stored if each is not None]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        def optional(*stored: StoredTensor | None) -> Tensor | None:
            return None if None in stored else matrix(*stored)

        embedding = matrix(parameters.embedding)
        layers = [
            _Layer(
                matrix(layer.attention_norm),
                matrix(layer.q, layer.k, layer.v),
                optional(layer.q_bias, layer.k_bias, layer.v_bias),
                optional(layer.q_norm),
                optional(layer.k_norm),
                matrix(layer.o),
                matrix(layer.mlp_norm),
                matrix(layer.gate, layer.up),
                matrix(layer.down),
            )
            for layer in parameters.layers
        ]
        head = embedding if parameters.head is parameters.embedding else matrix(parameters.head)
        tables = rotary_tables(parameters.inverse_frequencies, max_length)
        cos, sin = (torch.from_numpy(table).to(device) for table in tables)
        return cls(embedding, layers, matrix(parameters.final_norm), head, cos, sin)

    @classmethod
    def sharing(cls, weights: "DecoderWeights") -> "StockWeights":
        """The tensors of weights that are bfloat16 and have neither biases nor norms per head: no byte is copied."""

        def matrix(weight: "Weight") -> Tensor:
            (part,) = weight.parts
            assert part.planes.values.dtype == torch.bfloat16, "weights of bfloat16"
            return part.planes.values

        layers = [
            _Layer(
                layer.attention_norm.bfloat16(),
                matrix(layer.qkv),
                None,
                None,
                None,
                matrix(layer.o),
                layer.mlp_norm.bfloat16(),
                matrix(layer.gate_up),
                matrix(layer.down),
            )
            for layer in weights.layers
        ]
        ends = matrix(weights.embedding), layers, weights.final_norm.bfloat16(), matrix(weights.head)
        return cls(*ends, weights.rotary.cos, weights.rotary.sin)


class StockDecoder:
    """`batch` sequences side by side, each of at most `max_length` tokens, all of one length at any time."""

    def __init__(self, weights: StockWeights, shape: DecoderShape, batch: int, max_length: int) -> None:
        self.shape = shape
        self._weights = weights
        self._dtype, device = weights.embedding.dtype, weights.embedding.device
        memory = (shape.num_layers, batch, shape.num_kv_heads, max_length, shape.head_dim)
        self._keys, self._values = (torch.zeros(memory, device=device, dtype=self._dtype) for _ in range(2))

    @torch.inference_mode()
    def step(self, token_ids: Tensor, start: int) -> Tensor:
        """Logits [batch, vocab_size] of the last of `token_ids` [batch, num tokens], which lie at positions start …

        It can be captured in a CUDA graph: that graph runs the step at the very same positions.
        """
        num_tokens = token_ids.shape[1]
        cos, sin = (table[start : start + num_tokens, None] for table in (self._weights.cos, self._weights.sin))
        hidden = F.embedding(token_ids, self._weights.embedding)
        for index, layer in enumerate(self._weights.layers):
            normed = self._norm(hidden, layer.attention_norm)
            hidden = hidden + F.linear(self._attend(index, layer, normed, start, cos, sin), layer.o)
            gate, up = F.linear(self._norm(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(self._norm(hidden[:, -1], self._weights.final_norm), self._weights.head).float()

    def _attend(self, index: int, layer: _Layer, normed: Tensor, start: int, cos: Tensor, sin: Tensor) -> Tensor:
        """Attention's output [batch, num tokens, heads × head_dim]; writes this step's keys and values."""
        shape = self.shape
        batch, num_tokens, _width = normed.shape
        heads = F.linear(normed, layer.qkv, layer.qkv_bias).view(batch, num_tokens, -1, shape.head_dim)
        q, k, v = torch.split(heads, [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=2)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)
        q, k = (rotate(part.float(), cos, sin).to(self._dtype) for part in (q, k))
        end = start + num_tokens
        self._keys[index, :, :, start:end] = k.transpose(1, 2)
        self._values[index, :, :, start:end] = v.transpose(1, 2)
        keys, values = self._keys[index, :, :, :end], self._values[index, :, :, :end]
        mask = None
        if start and num_tokens > 1:  # a later chunk: causal from the last key backwards
            mask = torch.ones(num_tokens, end, dtype=torch.bool, device=q.device).tril(start)
        attended = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            keys,
            values,
            attn_mask=mask,
            is_causal=num_tokens > 1 and mask is None,
            enable_gqa=shape.num_heads != shape.num_kv_heads,
        )
        return attended.transpose(1, 2).reshape(batch, num_tokens, -1)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.shape.norm_epsilon)
