"""One step on the device: every kernel of every layer in order, over tensors whose places and sizes are fixed.

The same code runs a step at once, is captured in a CUDA graph, and is looked into: whoever watches sees each result
before it is read, and may change it. Nothing here waits for the device or looks at a number on it. It must not know
how the inputs came there, nor what becomes of the result.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.backend import KVPair
from kernels.cuda import attention, embedding, head, linear, rms_norm, rotary_kv, silu_mul
from kernels.cuda.attention_plan import Plan
from kernels.cuda.decoder_weights import DecoderWeights, LayerWeights
from kernels.cuda.workspace import Workspace
from kernels.decoder import DecoderShape
from kernels.trace import OUTSIDE_LAYERS


@dataclass(frozen=True, slots=True)
class StepInputs:
    """On the device. What pads an array is harmless: token 0 at position 0, the first slot of the spare block, row 0.

    token_ids, positions   int32 [rows]
    slots                  int64 [rows]
    logit_rows             int64 [logits]
    plan                   which keys each query reads
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    logit_rows: torch.Tensor
    plan: Plan


@dataclass(frozen=True, slots=True)
class StepResult:
    """Of the rows whose logits are wanted.

    residual, delta   float32 [logits, hidden size]: of these rows, to be normed
    normed            bfloat16 [logits, hidden size]: the input of the head
    logits            float32 [logits, vocabulary]
    best, highest, log_sum   int32, float32, float32 [logits]: the likeliest token, its logit, log Σ exp
    """

    residual: torch.Tensor
    delta: torch.Tensor
    normed: torch.Tensor
    logits: torch.Tensor
    best: torch.Tensor
    highest: torch.Tensor
    log_sum: torch.Tensor


class Watch(Protocol):
    """Sees results as they come (`kernels/trace.py` names them)."""

    def show(self, layer: int, operation: str, result: torch.Tensor) -> bool:
        """`result` [rows, …] may be changed in place; whether it was."""
        ...

    def show_kv(self, layer: int, operation: str, memory: KVPair) -> None:
        """The rows' slots of one layer's memory [1, blocks, …] have been written."""
        ...


class _Nobody:
    def show(self, layer: int, operation: str, result: torch.Tensor) -> bool:
        return False

    def show_kv(self, layer: int, operation: str, memory: KVPair) -> None:
        pass


NOBODY = _Nobody()


def run_step(
    weights: DecoderWeights,
    shape: DecoderShape,
    inputs: StepInputs,
    memory: KVPair,
    work: Workspace,
    result: StepResult,
    watch: Watch = NOBODY,
) -> None:
    """Write the rows' keys and values to `memory`, whose fresh blocks have been cleared, and `result`.

    memory   (keys, values) of all layers, [layers, blocks + the spare one, kv heads, block size, head dim]
    work     for as many rows as the inputs have
    """
    embedding.gather(inputs.token_ids, weights.embedding, work.hidden, shape.embedding_scale)
    watch.show(OUTSIDE_LAYERS, "embedding", work.hidden)
    given = None  # the norm of what was given last
    for index, layer in enumerate(weights.layers):
        _norm(index, layer.attention_norm, given, shape, work, watch, of="attention_norm", after="mlp_residual")
        _attend(index, layer, weights, shape, inputs, memory, work, watch)
        given = layer.post_attention_norm
        _norm(index, layer.mlp_norm, given, shape, work, watch, of="mlp_norm", after="attention_residual")
        _gated_mlp(index, layer, shape, work, watch)
        given = layer.post_mlp_norm
    _finish(weights, given, shape, inputs, work, result, watch)


def _norm(
    index: int,
    weight: torch.Tensor,
    given: torch.Tensor | None,
    shape: DecoderShape,
    work: Workspace,
    watch: Watch,
    *,
    of: str,
    after: str,
) -> None:
    """Add what the layer before (or its attention) has given to the residual stream, and norm the sum.

    given   weight of the norm that goes before the sum; None: there is none
    """
    if of == "attention_norm" and index == 0:
        rms_norm.rms_norm(work.hidden, weight, shape.norm_epsilon, work.normed)
    else:
        rms_norm.add_rms_norm(work.hidden, work.delta, weight, shape.norm_epsilon, work.normed, given)
        if watch.show(index - (of == "attention_norm"), after, work.hidden):
            work.delta.zero_()  # the sum was changed: norm it again, by the same kernel
            rms_norm.add_rms_norm(work.hidden, work.delta, weight, shape.norm_epsilon, work.normed)
    watch.show(index, of, work.normed)


def _attend(
    index: int,
    layer: LayerWeights,
    weights: DecoderWeights,
    shape: DecoderShape,
    inputs: StepInputs,
    memory: KVPair,
    work: Workspace,
    watch: Watch,
) -> None:
    linear.linear(work.normed, layer.qkv, work.qkv, layer.qkv_bias)
    q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    for name, part in zip("qkv", torch.split(work.qkv, [q_size, kv_size, kv_size], dim=1), strict=True):
        watch.show(index, name, part)
    keys, values = memory[0][index], memory[1][index]
    rotary_kv.rotary_write(
        work.qkv,
        inputs.positions,
        inputs.slots,
        *(weights.local_rotary if layer.is_local else weights.rotary),
        layer.q_norm,
        layer.k_norm,
        shape.norm_epsilon,
        work.queries,
        keys,
        values,
    )
    watch.show(index, "rotary_q", work.queries)
    of_layer = memory[0][index : index + 1], memory[1][index : index + 1]
    watch.show_kv(index, "rotary_k", of_layer)
    watch.show_kv(index, "kv_write", of_layer)
    window = shape.window if layer.is_local else 0
    attention.attend(work.queries, keys, values, inputs.plan, work.attended, shape.attention_scale, window)
    watch.show(index, "attention", work.attended)
    linear.linear(work.attended, layer.o, work.delta)
    watch.show(index, "o", work.delta)


def _gated_mlp(index: int, layer: LayerWeights, shape: DecoderShape, work: Workspace, watch: Watch) -> None:
    linear.linear(work.normed, layer.gate_up, work.gate_up)
    for name, part in zip(("gate", "up"), work.gate_up.chunk(2, dim=1), strict=True):
        watch.show(index, name, part)
    silu_mul.silu_mul(work.gate_up, work.activated, shape.activation)
    watch.show(index, "activation", work.activated)
    linear.linear(work.activated, layer.down, work.delta)
    watch.show(index, "down", work.delta)


def _finish(
    weights: DecoderWeights,
    given: torch.Tensor | None,
    shape: DecoderShape,
    inputs: StepInputs,
    work: Workspace,
    result: StepResult,
    watch: Watch,
) -> None:
    """Final norm, logits and their statistics, of the rows that are wanted alone."""
    final_norm, epsilon = weights.final_norm, shape.norm_epsilon
    if watch is not NOBODY:  # the sum that is made below, of all rows
        summed = work.hidden.clone()
        rms_norm.add_rms_norm(summed, work.delta, final_norm, epsilon, work.normed, given)
        if watch.show(shape.num_layers - 1, "mlp_residual", summed):
            work.hidden.copy_(summed)
            work.delta.zero_()
            given = None
    torch.index_select(work.hidden, 0, inputs.logit_rows, out=result.residual)
    torch.index_select(work.delta, 0, inputs.logit_rows, out=result.delta)
    rms_norm.add_rms_norm(result.residual, result.delta, final_norm, epsilon, result.normed, given)
    watch.show(OUTSIDE_LAYERS, "final_norm", result.normed)
    head.head(result.normed, weights.head, result.logits)
    watch.show(OUTSIDE_LAYERS, "head", result.logits)
    head.statistics(result.logits, result.best, result.highest, result.log_sum)
