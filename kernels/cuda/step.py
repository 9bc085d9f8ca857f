"""One step on the device: every kernel of every layer in order, over tensors whose places and sizes are fixed.

The same code runs a step at once, is captured in a CUDA graph or piece by piece in several, and is looked into: whoever
watches sees each result before it is read, and may change it. Nothing here waits for the device or looks at a number on
it. It must not know how the inputs came there, nor what becomes of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from kernels.backend import KVPair
from kernels.cuda import attention, embedding, head, linear, rms_norm, rotary_kv, silu_mul
from kernels.cuda.attention_plan import Plan
from kernels.cuda.decoder_weights import DecoderWeights
from kernels.cuda.watch import NOBODY, Watch
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


class Piece(NamedTuple):
    """Some launches of a step, one after the other.

    follows   what they follow from, but for numbers in memory: ROWS (the padded number of rows, so that one capture
              serves all steps of so many), PLAN (attention: the sequences), LOGITS (rows drawn from), or WHOLE: all
    """

    follows: str
    run: Callable[[], None]


ROWS, PLAN, LOGITS, WHOLE = "rows", "plan", "logits", "whole"


@dataclass(frozen=True, slots=True)
class Step:
    """
    memory   (keys, values) of all layers, [layers, blocks + the spare one, kv heads, block size, head dim]; the fresh
             blocks have been cleared
    work     for as many rows as the inputs have
    """

    weights: DecoderWeights
    shape: DecoderShape
    inputs: StepInputs
    memory: KVPair
    work: Workspace
    result: StepResult
    watch: Watch = NOBODY

    def run(self) -> None:
        """Write the rows' keys and values to `memory`, and `result`."""
        for piece in self.pieces():
            piece.run()

    def pieces(self) -> list[Piece]:
        """All of it: what is between two layers' attention is one piece."""
        layers = range(self.shape.num_layers)
        found = [Piece(ROWS, self._begin)]
        for index in layers:
            found.append(Piece(PLAN, partial(_attend, self, index)))
            found.append(Piece(ROWS, partial(self._between, index)))
        return [*found, Piece(LOGITS, partial(_finish, self))]

    def _begin(self) -> None:
        embedding.gather(self.inputs.token_ids, self.weights.embedding, self.work.hidden, self.shape.embedding_scale)
        self.watch.show(OUTSIDE_LAYERS, "embedding", self.work.hidden)
        _project(self, 0)

    def _between(self, index: int) -> None:
        """From one layer's attention to the next one's."""
        layer, work = self.weights.layers[index], self.work
        linear.linear(work.attended, layer.o, work.delta)
        self.watch.show(index, "o", work.delta)
        _norm(self, index, layer.mlp_norm, layer.post_attention_norm, of="mlp_norm", after="attention_residual")
        _gated_mlp(self, index)
        if index + 1 < self.shape.num_layers:
            _project(self, index + 1)


def _project(step: Step, index: int) -> None:
    """Queries of a layer, and its keys and values into their slots."""
    layer, shape, work, watch = step.weights.layers[index], step.shape, step.work, step.watch
    given = step.weights.layers[index - 1].post_mlp_norm if index else None
    _norm(step, index, layer.attention_norm, given, of="attention_norm", after="mlp_residual")
    linear.linear(work.normed, layer.qkv, work.qkv, layer.qkv_bias)
    q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    for name, part in zip("qkv", torch.split(work.qkv, [q_size, kv_size, kv_size], dim=1), strict=True):
        watch.show(index, name, part)
    rotary_kv.rotary_write(
        work.qkv,
        step.inputs.positions,
        step.inputs.slots,
        *(step.weights.local_rotary if layer.is_local else step.weights.rotary),
        layer.q_norm,
        layer.k_norm,
        shape.norm_epsilon,
        work.queries,
        step.memory[0][index],
        step.memory[1][index],
    )
    watch.show(index, "rotary_q", work.queries)
    of_layer = step.memory[0][index : index + 1], step.memory[1][index : index + 1]
    watch.show_kv(index, "rotary_k", of_layer)
    watch.show_kv(index, "kv_write", of_layer)


def _attend(step: Step, index: int) -> None:
    shape, work = step.shape, step.work
    window = shape.window if step.weights.layers[index].is_local else 0
    keys, values = step.memory[0][index], step.memory[1][index]
    attention.attend(work.queries, keys, values, step.inputs.plan, work.attended, shape.attention_scale, window)
    step.watch.show(index, "attention", work.attended)


def _norm(step: Step, index: int, weight: torch.Tensor, given: torch.Tensor | None, *, of: str, after: str) -> None:
    """Add what the layer before (or its attention) has given to the residual stream, and norm the sum.

    given   weight of the norm that goes before the sum; None: there is none
    """
    shape, work, watch = step.shape, step.work, step.watch
    if of == "attention_norm" and index == 0:
        rms_norm.rms_norm(work.hidden, weight, shape.norm_epsilon, work.normed)
    else:
        rms_norm.add_rms_norm(work.hidden, work.delta, weight, shape.norm_epsilon, work.normed, given)
        if watch.show(index - (of == "attention_norm"), after, work.hidden):
            work.delta.zero_()  # the sum was changed: norm it again, by the same kernel
            rms_norm.add_rms_norm(work.hidden, work.delta, weight, shape.norm_epsilon, work.normed)
    watch.show(index, of, work.normed)


def _gated_mlp(step: Step, index: int) -> None:
    layer, work, watch = step.weights.layers[index], step.work, step.watch
    linear.linear(work.normed, layer.gate_up, work.gate_up)
    for name, part in zip(("gate", "up"), work.gate_up.chunk(2, dim=1), strict=True):
        watch.show(index, name, part)
    silu_mul.silu_mul(work.gate_up, work.activated, step.shape.activation)
    watch.show(index, "activation", work.activated)
    linear.linear(work.activated, layer.down, work.delta)
    watch.show(index, "down", work.delta)


def _finish(step: Step) -> None:
    """Final norm, logits and their statistics, of the rows that are wanted alone."""
    work, result, watch = step.work, step.result, step.watch
    final_norm, epsilon, given = step.weights.final_norm, step.shape.norm_epsilon, step.weights.layers[-1].post_mlp_norm
    if watch is not NOBODY:  # the sum that is made below, of all rows
        summed = work.hidden.clone()
        rms_norm.add_rms_norm(summed, work.delta, final_norm, epsilon, work.normed, given)
        if watch.show(step.shape.num_layers - 1, "mlp_residual", summed):
            work.hidden.copy_(summed)
            work.delta.zero_()
            given = None
    torch.index_select(work.hidden, 0, step.inputs.logit_rows, out=result.residual)
    torch.index_select(work.delta, 0, step.inputs.logit_rows, out=result.delta)
    rms_norm.add_rms_norm(result.residual, result.delta, final_norm, epsilon, result.normed, given)
    watch.show(OUTSIDE_LAYERS, "final_norm", result.normed)
    head.head(result.normed, step.weights.head, result.logits)
    watch.show(OUTSIDE_LAYERS, "head", result.logits)
    head.statistics(result.logits, result.best, result.highest, result.log_sum)
