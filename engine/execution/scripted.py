"""An executor without weights: tests, simulation, model-free runs.

It behaves like a model where that matters: it keeps one number per KV slot, writes the planned rows' tokens into their
slots, and draws each next token from a hash of the *context it reads back through the block table*. So a block lost,
shared wrongly, overwritten or swapped wrongly changes the tokens and digests, as it would with weights; chunking,
prefix hits and preemption of either kind must not.
"""

import functools
import hashlib
import struct
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import (
    Decision,
    PreemptReason,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
)
from engine.core.events import FinishFlag, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.execution.digests import extend_digests
from engine.execution.interface import StepResult
from engine.execution.kv_watch import Filled, KVWatch
from engine.execution.prompt_logprobs import AskedPrompts, prompt_digests

if TYPE_CHECKING:
    from kernels.scoring import RowScores

SCRIPTED_VOCABULARY = 1_000
END_OF_TEXT = 0
_WORD = 2**64 - 1


class _Held:
    def __init__(self, sampling: SamplingParams, contents: RequestContents, digests: Sequence[bytes]) -> None:
        self.digests = list(digests)  # of its leading blocks, as far as they were asked for
        self.sampling = sampling
        self.contents = contents
        self.tokens = [*contents.prompt_token_ids, *contents.output_token_ids]
        self.block_table: list[int] = []
        self.has_ended = False


class ScriptedRunner:
    """A Runner whose tokens are a pure function of the context, the seed and the position.

    A token equal to END_OF_TEXT (1 in SCRIPTED_VOCABULARY draws) or in the stop tokens ends the request, unless
    ignore_eos or min_tokens forbid it.
    """

    def __init__(self, num_blocks: int, block_size: int, digest_key: bytes, *, keeps_kv_digests: bool = False) -> None:
        self._block_size = block_size
        self._digest_key = digest_key
        self._requests: dict[int, _Held] = {}
        self._asked = AskedPrompts(SCRIPTED_VOCABULARY)
        self.slots = array("q", [-1]) * (num_blocks * block_size)
        self.host: dict[int, array[int]] = {}  # host block → its tokens
        self.watch = KVWatch(self._digests, self._tables) if keeps_kv_digests else None

    def emptied(self, num_blocks: int, block_size: int, num_host_blocks: int) -> "ScriptedRunner":
        """Another one with a memory of its own and no request; its host pool is as large as it comes to be."""
        return ScriptedRunner(num_blocks, block_size, self._digest_key, keeps_kv_digests=self.watch is not None)

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        digests: list[bytes] = []
        num_blocks = len(contents.prompt_token_ids) // self._block_size
        extend_digests(digests, contents.prompt_token_ids, num_blocks, self._block_size, self._digest_key)
        return tuple(digests)

    def prepare_grammar(self, grammar: str) -> None:
        """It follows none."""

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        self._requests[request] = _Held(sampling, contents, digests)
        self._asked.add(request, sampling, contents)

    def carry_out(self, decision: Decision) -> None:
        match decision:
            case RequestAdmitted():
                self._requests[decision.request].block_table = list(decision.block_ids)
                blocks = decision.block_ids[decision.num_hit_blocks :][: len(decision.host_blocks)]
                for host_block, block in zip(decision.host_blocks, blocks, strict=True):
                    self.slots[self._slots_of(block)] = self.host[host_block]
                if self.watch is not None:
                    self.watch.admitted(decision)
            case RequestPreempted():
                blocks = tuple(self._requests[decision.request].block_table[: len(decision.host_blocks)])
                for host_block, block in zip(decision.host_blocks, blocks, strict=True):
                    self.host[host_block] = self.slots[self._slots_of(block)]
                if self.watch is not None and blocks:
                    self.watch.copied_out(decision.request, blocks, decision.host_blocks)
                self._requests[decision.request].block_table = []
                if decision.reason == PreemptReason.KV_MISMATCH:
                    self._asked.distrust(decision.request)
            case RequestFinished() | RequestRejected():
                self._requests.pop(decision.request, None)
                self._asked.drop(decision.request)
            case _:
                pass

    def execute(self, plan: StepPlanned) -> StepResult:
        for request, block in plan.new_blocks:
            if request in self._requests:
                self._requests[request].block_table.append(block)
        if self.watch is not None:
            self.watch.allocated([block for _request, block in plan.new_blocks])
        emitted: list[tuple[int, str, int, int]] = []
        filled: list[tuple[int, bytes]] = []
        outputs: list[TokenOutput] = []
        rows = [row for row in plan.rows if row[0] in self._requests and not self._requests[row[0]].has_ended]
        for request, start, count in rows:
            held = self._requests[request]
            for position in range(start, start + count):
                self.slots[self._slot(held, position)] = held.tokens[position]
            filled.extend((request, digest) for digest in self._filled_digests(held, start, start + count))
        kv_digests = () if self.watch is None else self.watch.filled(self._filled_blocks(rows))
        for request, start, count in rows:  # all rows write before any reads, as in a batched attention
            held = self._requests[request]
            self._asked.ask(request, start, start + count, functools.partial(self._score, held))
            if start + count == len(held.tokens):
                context_digest, token = self._draw(held)
                flag = self._flag(held, token)
                held.has_ended = flag is not FinishFlag.NONE
                emitted.append((request, flag, context_digest, context_digest & 0xFFFFFFFF))
                outputs.append(TokenOutput(request, token, -1.0))
                held.tokens.append(token)
        prompts = self._asked.told([row[0] for row in emitted]) if self._asked else ()
        told = prompt_digests(prompts)
        completed = StepCompleted(plan.step, tuple(emitted), tuple(filled), 0, 0, 0, kv_digests, told)
        return StepResult(completed, tuple(outputs), prompts)

    def _filled_blocks(self, rows: Sequence[tuple[int, int, int]]) -> list[Filled]:
        size = self._block_size
        return [
            Filled(request, index, self._requests[request].block_table[index])
            for request, start, count in rows
            for index in range(start // size, (start + count) // size)
        ]

    def _digests(self, blocks: Sequence[int]) -> list[int]:
        contents = [self.slots[self._slots_of(block)].tobytes() for block in blocks]
        return [int.from_bytes(hashlib.blake2b(each, digest_size=8).digest(), "little") for each in contents]

    def _tables(self) -> list[tuple[int, list[int]]]:
        return [(number, held.block_table) for number, held in self._requests.items()]

    def _slots_of(self, block: int) -> slice:
        return slice(block * self._block_size, (block + 1) * self._block_size)

    def _slot(self, held: _Held, position: int) -> int:
        return held.block_table[position // self._block_size] * self._block_size + position % self._block_size

    def _filled_digests(self, held: _Held, start: int, end: int) -> list[bytes]:
        first = max(start, len(held.contents.prompt_token_ids) // self._block_size * self._block_size)
        first_block, end_block = first // self._block_size, end // self._block_size
        if end_block <= first_block:
            return []
        extend_digests(held.digests, held.tokens, end_block, self._block_size, self._digest_key)
        return held.digests[first_block:end_block]

    def _draw(self, held: _Held) -> tuple[int, int]:
        context = array("q", [self.slots[self._slot(held, position)] for position in range(len(held.tokens))])
        digest = hashlib.blake2b(context.tobytes(), digest_size=8).digest()
        num_output_tokens = len(held.tokens) - len(held.contents.prompt_token_ids)
        seed = held.sampling.seed & _WORD  # any integer, as for a model
        draw = hashlib.blake2b(digest + struct.pack("<QQ", seed, num_output_tokens), digest_size=8)
        token = int.from_bytes(draw.digest(), "little") % SCRIPTED_VOCABULARY
        return int.from_bytes(digest, "little"), token

    def _score(self, held: _Held, first: int, last: int, num_top: int) -> "RowScores":
        """Of the context up to each row, read back as for a draw, and of the token that follows it."""
        from kernels.scoring import RowScores  # here, for it loads numpy, and most runs ask nothing

        context = hashlib.blake2b(digest_size=8)
        scores = RowScores.empty(last - first, num_top)
        for position in range(last):
            context.update(struct.pack("<q", self.slots[self._slot(held, position)]))
            if position < first:
                continue
            row, digest = position - first, int.from_bytes(context.digest(), "little")
            rank = (digest ^ held.tokens[position + 1]) % SCRIPTED_VOCABULARY
            scores.logprobs[row], scores.ranks[row] = -1.0 - rank / 64, rank + 1
            for place in range(num_top):
                scores.top_ids[row, place] = (digest + place) % SCRIPTED_VOCABULARY
                scores.top_logprobs[row, place] = -1.0 - place / 64
        return scores

    def _flag(self, held: _Held, token: int) -> FinishFlag:
        num_output_tokens = len(held.tokens) - len(held.contents.prompt_token_ids) + 1
        if num_output_tokens < held.sampling.min_tokens:
            return FinishFlag.NONE
        is_end = token == END_OF_TEXT and not held.sampling.ignore_eos
        return FinishFlag.STOP if is_end or token in held.contents.stop_token_ids else FinishFlag.NONE
