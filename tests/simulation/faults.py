"""Executors that fail: a step raises before or after it has written, or a row's logits are not finite.

Both keep to the promise of their kind: `FaultyRunner` computes tokens from contexts, so that a foreign token shows;
`CountingRunner` only counts, a few times as fast, for long runs.
"""

import random
from dataclasses import dataclass

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import Decision, RequestFinished, RequestRejected, StepPlanned
from engine.core.events import FinishFlag, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.execution.digests import extend_digests
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner, _Held

DIGEST_KEY = b"simulated-salt--"
_NS_PER_TOKEN = (0, 100_000, 100_000, 120_000, 5_000_000)
_ERROR_SHARE = 0.3  # of faults: a row's logits; the others raise


@dataclass
class Faults:
    """`rate` of a step; set to 0 they have ended."""

    rng: random.Random
    rate: float

    def strike(self) -> bool:
        return self.rate > 0 and self.rng.random() < self.rate

    def disturb(self, result: StepResult, num_tokens: int) -> StepResult:
        """The result of a step that took some time and in which a row may have gone wrong."""
        completed = result.completed
        emitted, outputs = completed.emitted, result.outputs
        if emitted and self.rate > 0 and self.rng.random() < self.rate * _ERROR_SHARE:
            index = self.rng.randrange(len(emitted))
            row = emitted[index]
            emitted = (*emitted[:index], (row[0], FinishFlag.ERROR, *row[2:]), *emitted[index + 1 :])
            outputs = tuple([output for output in outputs if output.request != row[0]])
        step_ns = num_tokens * self.rng.choice(_NS_PER_TOKEN)
        completed = completed._replace(emitted=emitted, execute_ns=step_ns, swap_ns=step_ns // 4)
        return StepResult(completed, outputs, result.prompts)


class FaultyRunner(ScriptedRunner):
    def __init__(self, num_blocks: int, block_size: int, faults: Faults) -> None:
        super().__init__(num_blocks, block_size, DIGEST_KEY)
        self._faults = faults

    def execute(self, plan: StepPlanned) -> StepResult:
        fails, has_written = self._faults.strike(), self._faults.strike()
        if fails and not has_written:
            raise RuntimeError("simulated fault before the step")
        result = super().execute(plan)
        if fails:
            raise RuntimeError("simulated fault after the step")
        return self._faults.disturb(result, sum([count for _request, _start, count in plan.rows]))


class LateWritingRunner(FaultyRunner):
    """A device that takes a step's tables and rows when it is launched, and writes when it is collected: whatever was
    done to them in between is what a faster host would do under a running step."""

    def __init__(self, num_blocks: int, block_size: int, faults: Faults) -> None:
        super().__init__(num_blocks, block_size, faults)
        self._launched: tuple[StepPlanned, dict[int, _Held], list[list[int]]] | None = None

    def launch(self, plan: StepPlanned) -> None:
        for request, block in plan.new_blocks:
            if request in self._requests:
                self._requests[request].block_table.append(block)
        tables = [list(held.block_table) for held in self._requests.values()]
        self._launched = plan._replace(new_blocks=()), dict(self._requests), tables

    def collect(self) -> StepResult:
        assert self._launched is not None
        (plan, as_launched, tables), self._launched = self._launched, None
        requests_now, tables_now = self._requests, [held.block_table for held in as_launched.values()]
        self._requests = as_launched
        _give(as_launched, tables)
        try:
            return self.execute(plan)
        finally:
            self._requests = requests_now
            _give(as_launched, tables_now)


def _give(requests: dict[int, _Held], tables: list[list[int]]) -> None:
    for held, table in zip(requests.values(), tables, strict=True):
        held.block_table = table


class CountingRunner:
    """A request ends by itself at a token that its seed says."""

    def __init__(self, block_size: int, faults: Faults) -> None:
        self._block_size = block_size
        self._faults = faults
        self._held: dict[int, list[int]] = {}  # request → tokens, of these prompt tokens, tokens at its own end

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        digests: list[bytes] = []
        tokens = contents.prompt_token_ids
        extend_digests(digests, tokens, len(tokens) // self._block_size, self._block_size, DIGEST_KEY)
        return tuple(digests)

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        num_tokens = len(contents.prompt_token_ids)
        self._held[request] = [num_tokens, num_tokens, num_tokens + 1 + sampling.min_tokens + sampling.seed % 40]

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, RequestFinished | RequestRejected):
            self._held.pop(decision.request, None)

    def execute(self, plan: StepPlanned) -> StepResult:
        if self._faults.strike():
            raise RuntimeError("simulated fault")
        size, num_tokens = self._block_size, 0
        emitted: list[tuple[int, str, int, int]] = []
        filled: list[tuple[int, bytes]] = []
        for request, start, count in plan.rows:
            if request not in self._held:  # it ended after the step was planned
                continue
            held, end = self._held[request], start + count
            num_tokens += count
            for index in range(max(start // size, held[1] // size), end // size):
                filled.append((request, b"%d:%d" % (request, index)))
            if end == held[0]:
                held[0] += 1
                emitted.append((request, FinishFlag.STOP if held[0] >= held[2] else FinishFlag.NONE, 0, 0))
        outputs = tuple([TokenOutput(row[0], 1, -1.0) for row in emitted])
        completed = StepCompleted(plan.step, tuple(emitted), tuple(filled), 0, 0)
        return self._faults.disturb(StepResult(completed, outputs), num_tokens)
