"""Executes planned steps on a model: tokens, block tables and digests on this side, numbers on the backend's.

It follows the core's decisions to the letter and decides nothing. It is called from one thread.
"""

import functools
import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from engine.clock import Clock
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import (
    Decision,
    PreemptReason,
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
from engine.execution.launching import Worker
from engine.execution.notices import tell
from engine.execution.prompt_logprobs import AskedPrompts, prompt_digests
from engine.execution.token_mask import prepare_mask
from engine.text.detokenizer import Detokenizer
from engine.text.text_model import TextModel
from kernels.backend import Backend, Floats, LaunchingBackend
from kernels.device_backend import DeviceBackend
from kernels.sampling import DrawRow
from kernels.scoring import RowScores

_FLOAT = struct.Struct("<f")


class ModelRunner:
    """The Runner of `interface.py` with weights; a Launcher of `launching.py`, too.

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
        self._asked = AskedPrompts(backend.vocab_size)
        self._swap_ns = 0  # since the step before
        self._worker = Worker()
        self._launched: tuple[_Begun, Callable[[], tuple[Floats, int]]] | None = None
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

    def prepare_grammar(self, grammar: str) -> None:
        """A request that follows `grammar` is about to be added: what takes long is done now, in any thread."""
        prepare_mask(self._text_model, grammar)

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        """The first of two with one number is kept: the core rejects the second as a duplicate."""
        if request not in self._requests:
            self._requests[request] = HeldRequest(sampling, contents, self._text_model, list(digests))
            self._asked.add(request, sampling, contents)

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
            if decision.reason == PreemptReason.KV_MISMATCH:
                self._asked.distrust(decision.request)
        elif isinstance(decision, RequestFinished) or (
            isinstance(decision, RequestRejected) and decision.reason != RejectReason.DUPLICATE_REQUEST
        ):
            self._requests.pop(decision.request, None)
            self._asked.drop(decision.request)

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
        begun = self._begin(plan)
        hidden = self._forward(begun.rows)
        return self._finish(begun, hidden, self._clock.now_ns())

    def launch(self, plan: StepPlanned) -> None:
        """Nothing is under way when this raises."""
        begun = self._begin(plan)
        self._launched = begun, self._launch_forward(begun.rows)

    def collect(self) -> StepResult:
        assert self._launched is not None, "no step was launched"
        (begun, wait), self._launched = self._launched, None
        return self._finish(begun, *wait())

    def _begin(self, plan: StepPlanned) -> "_Begun":
        """What goes before the forward pass."""
        swap_ns, self._swap_ns = self._swap_ns, 0
        started_ns = self._clock.now_ns()
        for number, block in plan.new_blocks:
            if number in self._requests:
                self._requests[number].block_table.append(block)
        if self.watch is not None:
            self.watch.allocated([block for _number, block in plan.new_blocks])
        rows = planned_rows(plan, self._requests)
        emitting = [row for row in rows if row.emits]
        draws: list[DrawRow] | None = None
        if isinstance(self.backend, DeviceBackend):
            draws = [row.request.sampler.next_row() for row in emitting]
            self.backend.expect_draws(draws)
        return _Begun(plan.step, rows, emitting, draws, swap_ns, started_ns)

    def _finish(self, begun: "_Begun", hidden: Floats, executed_ns: int) -> StepResult:
        """What goes after it."""
        step, rows, emitting, draws, swap_ns, started_ns = begun
        filled = tuple(self._filled(rows))
        kv_digests = () if self.watch is None else self.watch.filled(self._filled_blocks(rows))
        if self._asked:
            self._ask_prompts(rows)
        emitted, outputs = self._draw(emitting, draws, hidden)
        prompts = self._asked.told([row.number for row in emitting]) if self._asked else ()
        sampled_ns = self._clock.now_ns()
        execute_ns, sample_ns = executed_ns - started_ns, sampled_ns - executed_ns
        completed = StepCompleted(step, emitted, filled, execute_ns, sample_ns, swap_ns, kv_digests)
        if prompts:
            completed = completed._replace(prompt_logprobs=prompt_digests(prompts))
        return StepResult(completed, outputs, prompts)

    def _forward(self, rows: list[PlannedRow]) -> Floats:
        """The emitting rows' final hidden rows; their logits stay with the backend."""
        if not rows:
            return np.empty((0, 0), np.float32)
        batch = step_batch(rows, self.kv_store.block_size)
        return self.backend.forward(batch, self.kv_store.keys, self.kv_store.values).hidden

    def _launch_forward(self, rows: list[PlannedRow]) -> Callable[[], tuple[Floats, int]]:
        """Returns what waits for the hidden rows and the time at which they were there."""
        keys, values, clock = self.kv_store.keys, self.kv_store.values, self._clock
        if rows and isinstance(self.backend, LaunchingBackend):
            pending = self.backend.launch(step_batch(rows, self.kv_store.block_size), keys, values)
            return lambda: (pending().hidden, clock.now_ns())
        return self._worker.begin(lambda: (self._forward(rows), clock.now_ns()))

    def _ask_prompts(self, rows: list[PlannedRow]) -> None:
        """What the model says of the prompts' tokens, where that is wanted."""
        place = 0  # of the request's first row among all of the step's
        for number, request, start, end in rows:
            self._asked.ask(number, start, end, functools.partial(self._score, request.tokens, place - start))
            place += end - start

    def _score(self, tokens: list[int], offset: int, first: int, last: int, num_top: int) -> RowScores:
        """Each of a request's rows about the token that follows; they lie `offset` further on in the step."""
        rows = np.arange(first + offset, last + offset, dtype=np.int64)
        return self.backend.score(rows, np.array(tokens[first + 1 : last + 1], np.int64), num_top)

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
        self, emitting: list[PlannedRow], expected: list[DrawRow] | None, hidden: Floats
    ) -> tuple[tuple[tuple[int, str, int, int], ...], tuple[TokenOutput, ...]]:
        """Draw each emitting row's token and append it to its request; a row without finite logits draws none."""
        emitted: list[tuple[int, str, int, int]] = []
        outputs: list[TokenOutput] = []
        rows = [row.request.sampler.next_row() for row in emitting] if expected is None else expected
        draws = self.backend.draw(rows) if rows else []
        if expected is not None:
            tell(self.backend)
        unfit = self._asked.not_finite() if self._asked else ()
        for row, of_row, draw in zip(emitting, hidden, draws, strict=True):
            flag = FinishFlag.ERROR
            if draw.is_finite and row.number not in unfit:
                flag = FinishFlag.STOP if row.request.takes(draw.token_id) else FinishFlag.NONE
                outputs.append(TokenOutput(row.number, draw.token_id, draw.logprob, draw.top_logprobs))
            else:
                row.request.has_ended = True
            emitted.append((row.number, flag, hidden_digest(of_row), _bits(draw.logprob)))
        return tuple(emitted), tuple(outputs)


class _Begun(NamedTuple):
    """A step whose forward pass is under way.

    draws   of the emitting rows, where the backend was told to expect them
    """

    step: int
    rows: list[PlannedRow]
    emitting: list[PlannedRow]
    draws: list[DrawRow] | None
    swap_ns: int
    started_ns: int


def hidden_digest(hidden: Floats) -> int:
    """64-bit digest of a final hidden row (the head's input), over its float32 bytes."""
    return int.from_bytes(hashlib.blake2b(hidden.data, digest_size=8).digest(), "little")


def _bits(logprob: float) -> int:
    """The float32's bits as u32."""
    return int.from_bytes(_FLOAT.pack(logprob), "little")
