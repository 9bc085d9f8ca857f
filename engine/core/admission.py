"""What keeps a waiting request out although its blocks are free: the watermark, and what those that run will need yet.

Blocks are given to a request as it grows, so free blocks are promised twice as soon as more requests run than can come
to their ends together; then the pool runs out and somebody is preempted. Two rules keep that away:

- a *watermark*: so many blocks stay free at an admission; the thrash controller raises it under pressure;
- a *reservation* of expected output: a request is admitted only if the running ones and it, each growing by a token a
  step to its expected length and leaving then, are never expected to hold more blocks than there are. This looks at
  when each leaves, not only at how long it gets: requests of different ages fit more densely than equally old ones.

Neither binds while nothing runs: the head of the queue is always admitted then. It must not know policies or steps.

Source of the peak: Gong et al., Past-Future Scheduler for LLM Serving under SLA Guarantees, ASPLOS 2025.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.core.decisions import DeferReason, FinishReason
from engine.core.errors import InvalidLimits
from engine.core.expected_output import ExpectedOutput
from engine.core.kv_cache import BlockPool
from engine.core.limits import Limits
from engine.core.request import Request
from engine.core.thrash import ThrashController

RESERVATIONS = ("none", "expected", "max")
_OWN_ENDS = (FinishReason.STOP, FinishReason.LENGTH)


class Refusal(NamedTuple):
    """
    num_blocks_kept   the watermark, or by how many blocks the pool is expected to be exceeded, with the reason
    """

    reason: DeferReason
    num_blocks_kept: int


class AdmissionControl:
    """Asked about the head of the queue once its blocks are known to be free; `thrash` sets the watermark."""

    def __init__(self, limits: Limits, pool: BlockPool) -> None:
        if limits.reserve_output not in RESERVATIONS:
            raise InvalidLimits(f"reserve_output is {limits.reserve_output!r}: choose one of {', '.join(RESERVATIONS)}")
        self._limits = limits
        self._pool = pool
        self._expected = ExpectedOutput()
        self._refused: tuple[int, Refusal] | None = None  # whose reservation failed; stands until the running change
        self.thrash = ThrashController(limits)

    def refusal(self, candidate: Request, num_needed: int, running: Sequence[Request]) -> Refusal | None:
        """Why `candidate`, which needs so many of the free blocks, must wait for all that; None when it need not."""
        if not running:
            return None
        watermark_blocks = self.thrash.watermark_blocks
        if self._pool.num_free - num_needed < watermark_blocks:
            return Refusal(DeferReason.WATERMARK, watermark_blocks)
        if self._limits.reserve_output == "none":
            return None
        if self._refused is not None and self._refused[0] == candidate.number:
            return self._refused[1]
        num_lacking = self._peak_blocks(candidate, running) - self._limits.num_kv_blocks
        if num_lacking <= 0:
            return None
        refusal = Refusal(DeferReason.EXPECTED_GROWTH, num_lacking)
        self._refused = (candidate.number, refusal)
        return refusal

    def running_changed(self) -> None:
        """Somebody was admitted, preempted, or has ended. (While nobody does, all grow as was expected of them.)"""
        self._refused = None

    def finished(self, request: Request, reason: FinishReason) -> None:
        self.running_changed()
        if reason in _OWN_ENDS:
            self._expected.learn(request.max_output_tokens, request.num_output_tokens)

    def _peak_blocks(self, candidate: Request, running: Sequence[Request]) -> int:
        """The most blocks that the running and the candidate are expected to hold at any time to come.

        The peaks lie where somebody ends: then all that last longer, and it itself, are as long as they get until then.
        """
        size = self._limits.block_size
        lasting = [self._left_and_own(request) for request in running]
        num_held = self._pool.num_blocks - self._pool.num_free
        num_shared = max(0, num_held - sum([own for _left, own in lasting]) // size)
        lasting.append(self._left_and_own(candidate))
        lasting.sort(reverse=True)
        own_tokens = peak_tokens = 0
        for count, (left, own) in enumerate(lasting, 1):
            own_tokens += own
            peak_tokens = max(peak_tokens, own_tokens + count * (left + size // 2))  # half a block each is rounding
        return -(-peak_tokens // size) + num_shared

    def _left_and_own(self, request: Request) -> tuple[int, int]:
        """Tokens it is expected to emit yet; tokens that lie in blocks which it shares with nobody older."""
        num_output_tokens, most = request.num_output_tokens, request.max_output_tokens
        expected = most if self._limits.reserve_output == "max" else self._expected.predict(most)
        left = expected - num_output_tokens
        if left < self._limits.block_size:  # it is about to end, or lasts longer than expected: then by a quarter more
            left = max(self._limits.block_size, num_output_tokens // 4)
        own = request.num_tokens - request.num_hit_blocks * self._limits.block_size
        return min(left, most - num_output_tokens), own
