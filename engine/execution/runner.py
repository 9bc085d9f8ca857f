"""Executes planned steps on a model: tokens, block tables and digests on this side, numbers on the backend's.

It follows the core's decisions to the letter and decides nothing. It is called from one thread.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from engine.clock import Clock
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import (
    Decision,
    RejectReason,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
)
from engine.core.events import FinishFlag, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.execution.batch import PlannedRow, planned_rows, step_batch
from engine.execution.digests import extend_digests
from engine.execution.held_request import HeldRequest
from engine.execution.interface import StepResult
from engine.execution.kv_store import KVStore
from engine.execution.kv_watch import Filled, KVWatch
from engine.text.detokenizer import Detokenizer
from engine.text.text_model import TextModel
from kernels.backend import Backend, Floats

_FLOAT = struct.Struct("<f")


class ModelRunner:
    """The Runner of `interface.py` with weights.

    text_model      whose end-of-text ids end a request, and in whose text stop strings are looked for
    digest_key      key of the block digests (16 bytes): the recording's salt
    watch           where `keeps_kv_digests`: what its blocks hold, and what was noticed
    """

    def __init__(
        self,
        backend: Backend,
        kv_store: KVStore,
        text_model: TextModel,
        digest_key: bytes,
        clock: Clock,
        *,
        keeps_kv_digests: bool = False,
    ) -> None:
        self.backend = backend
        self.kv_store = kv_store
        self._text_model = text_model
        self._digest_key = digest_key
        self._clock = clock
        self._requests: dict[int, HeldRequest] = {}
        self._swap_ns = 0  # since the step before
        self.watch = KVWatch(kv_store.digests, self._tables) if keeps_kv_digests else None

    def emptied(self, num_blocks: int, block_size: int, num_host_blocks: int) -> "ModelRunner":
        """Another runner on the same weights: a memory of its own with nothing in it, and no request."""
        kv_store = KVStore.allocate(self.backend, num_blocks, block_size, num_host_blocks)
        keeps_kv_digests = self.watch is not None
        return type(self)(
            self.backend, kv_store, self._text_model, self._digest_key, self._clock, keeps_kv_digests=keeps_kv_digests
        )

    def text_of(self, token_ids: Sequence[int]) -> str:
        """What an answer of these tokens reads."""
        detokenizer = Detokenizer(self._text_model)
        return "".join([detokenizer.push(token_id) for token_id in token_ids]) + detokenizer.finish()

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        digests: list[bytes] = []
        num_blocks = len(contents.prompt_token_ids) // self.kv_store.block_size
        self._extend_digests(digests, contents.prompt_token_ids, num_blocks)
        return tuple(digests)

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        """The first of two with one number is kept: the core rejects the second as a duplicate."""
        if request not in self._requests:
            self._requests[request] = HeldRequest(sampling, contents, self._text_model, list(digests))

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, RequestAdmitted):
            self._requests[decision.request].block_table = list(decision.block_ids)
            if decision.host_blocks:
                self._swap_in(decision)
            if self.watch is not None:
                self.watch.admitted(decision)
        elif isinstance(decision, RequestPreempted):
            if decision.host_blocks:
                self._swap_out(decision)
            self._requests[decision.request].block_table = []
        elif isinstance(decision, RequestFinished) or (
            isinstance(decision, RequestRejected) and decision.reason != RejectReason.DUPLICATE_REQUEST
        ):
            self._requests.pop(decision.request, None)

    def _swap_out(self, decision: RequestPreempted) -> None:
        """At once: whoever gets these blocks is told by a later decision, and writes to them in a later step."""
        started_ns = self._clock.now_ns()
        blocks = self._requests[decision.request].block_table[: len(decision.host_blocks)]
        self.kv_store.swap_out(blocks, decision.host_blocks)
        if self.watch is not None:
            self.watch.copied_out(decision.request, blocks, decision.host_blocks)
        self._swap_ns += self._clock.now_ns() - started_ns

    def _swap_in(self, decision: RequestAdmitted) -> None:
        started_ns = self._clock.now_ns()
        first = decision.num_hit_blocks
        blocks = decision.block_ids[first : first + len(decision.host_blocks)]
        self.kv_store.swap_in(decision.host_blocks, blocks)
        self._swap_ns += self._clock.now_ns() - started_ns

    def execute(self, plan: StepPlanned) -> StepResult:
        swap_ns, self._swap_ns = self._swap_ns, 0
        started_ns = self._clock.now_ns()
        for number, block in plan.new_blocks:
            if number in self._requests:
                self._requests[number].block_table.append(block)
        if self.watch is not None:
            self.watch.allocated([block for _number, block in plan.new_blocks])
        rows = planned_rows(plan, self._requests)
        emitting = [row for row in rows if row.emits]
        hidden = self._forward(rows)
        executed_ns = self._clock.now_ns()
        filled = tuple(self._filled(rows))
        kv_digests = () if self.watch is None else self.watch.filled(self._filled_blocks(rows))
        emitted, outputs = self._draw(emitting, hidden)
        sampled_ns = self._clock.now_ns()
        execute_ns, sample_ns = executed_ns - started_ns, sampled_ns - executed_ns
        completed = StepCompleted(plan.step, emitted, filled, execute_ns, sample_ns, swap_ns, kv_digests)
        return StepResult(completed, outputs)

    def _forward(self, rows: list[PlannedRow]) -> Floats:
        """The emitting rows' final hidden rows; their logits stay with the backend."""
        if not rows:
            return np.empty((0, 0), np.float32)
        batch = step_batch(rows, self.kv_store.block_size)
        return self.backend.forward(batch, self.kv_store.keys, self.kv_store.values).hidden

    def _filled(self, rows: list[PlannedRow]) -> Iterator[tuple[int, bytes]]:
        """Digests of the blocks that these rows filled beyond the prompt's own full ones."""
        block_size = self.kv_store.block_size
        for number, request, start, end in rows:
            first = max(start // block_size, request.num_prompt_tokens // block_size)
            num_full = end // block_size
            self._extend_digests(request.digests, request.tokens, num_full)
            for block in range(first, num_full):
                yield number, request.digests[block]

    def _filled_blocks(self, rows: list[PlannedRow]) -> list[Filled]:
        """All blocks that these rows filled, the prompt's too."""
        size = self.kv_store.block_size
        return [
            Filled(number, index, request.block_table[index])
            for number, request, start, end in rows
            for index in range(start // size, end // size)
        ]

    def _tables(self) -> list[tuple[int, list[int]]]:
        return [(number, request.block_table) for number, request in self._requests.items()]

    def _extend_digests(self, digests: list[bytes], tokens: list[int] | tuple[int, ...], num_blocks: int) -> None:
        extend_digests(digests, tokens, num_blocks, self.kv_store.block_size, self._digest_key)

    def _draw(
        self, emitting: list[PlannedRow], hidden: Floats
    ) -> tuple[tuple[tuple[int, str, int, int], ...], tuple[TokenOutput, ...]]:
        """Draw each emitting row's token and append it to its request; a row without finite logits draws none."""
        emitted: list[tuple[int, str, int, int]] = []
        outputs: list[TokenOutput] = []
        draws = self.backend.draw([row.request.sampler.next_row() for row in emitting]) if emitting else []
        for row, of_row, draw in zip(emitting, hidden, draws, strict=True):
            flag = FinishFlag.ERROR
            if draw.is_finite:
                flag = FinishFlag.STOP if row.request.takes(draw.token_id) else FinishFlag.NONE
                outputs.append(TokenOutput(row.number, draw.token_id, draw.logprob, draw.top_logprobs))
            emitted.append((row.number, flag, hidden_digest(of_row), _bits(draw.logprob)))
        return tuple(emitted), tuple(outputs)


def hidden_digest(hidden: Floats) -> int:
    """64-bit digest of a final hidden row (the head's input), over its float32 bytes."""
    return int.from_bytes(hashlib.blake2b(hidden.data, digest_size=8).digest(), "little")


def _bits(logprob: float) -> int:
    """The float32's bits as u32."""
    return int.from_bytes(_FLOAT.pack(logprob), "little")
