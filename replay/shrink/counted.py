"""The executor of a performance that needs no token: rows are counted, ends come where they were recorded.

Digests are the recorded ones, so prefixes are shared as they were; a block that no recorded output filled gets one of
its own. Hidden digests and log-probabilities are 0.
"""

from engine.core.contents import TokenOutput
from engine.core.decisions import Decision, RequestFinished, RequestRejected, StepPlanned
from engine.core.events import FinishFlag, RequestArrived, StepCompleted
from replay.shrink.scenario import Caller

_TOKEN = str(FinishFlag.NONE)


class CountedExecutor:
    """An `Executor` of `rehearsal.py`."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._held: dict[int, _Held] = {}

    def arrive(self, caller: Caller) -> RequestArrived:
        arrived = caller.arrived
        num_digests = arrived.num_prompt_tokens // self._block_size
        digests = arrived.prompt_digests[:num_digests]
        digests += tuple([_own_digest(caller.number, index) for index in range(len(digests), num_digests)])
        self._held.setdefault(caller.number, _Held(caller))
        return arrived._replace(prompt_digests=digests)

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, RequestFinished | RequestRejected):
            self._held.pop(decision.request, None)

    def execute(self, plan: StepPlanned) -> tuple[StepCompleted, tuple[TokenOutput, ...]]:
        emitted: list[tuple[int, str, int, int]] = []
        filled: list[tuple[int, bytes]] = []
        for request, start, count in plan.rows:
            held = self._held.get(request)
            if held is None:
                continue
            end, num_prompt_blocks = start + count, held.num_prompt_tokens // self._block_size
            first = max(start // self._block_size, num_prompt_blocks)
            filled += [
                (request, held.digest(index - num_prompt_blocks)) for index in range(first, end // self._block_size)
            ]
            if end == held.num_tokens:
                held.num_tokens += 1
                emitted.append((request, held.flag(), 0, 0))
        return StepCompleted(plan.step, tuple(emitted), tuple(filled), 0, 0), ()


class _Held:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.num_prompt_tokens = caller.arrived.num_prompt_tokens
        self._num_known = self.num_prompt_tokens + caller.arrived.num_output_tokens
        self.num_tokens = self._num_known

    def flag(self) -> str:
        num_emitted = self.num_tokens - self._num_known
        return self._caller.end_flag if num_emitted == self._caller.num_own_tokens else _TOKEN

    def digest(self, index: int) -> bytes:
        """Of the output's block so many."""
        filled = self._caller.filled
        return filled[index] if index < len(filled) else _own_digest(self._caller.number, 1_000_000 + index)


def _own_digest(request: int, index: int) -> bytes:
    return b"s%07d%08d" % (request, index)
