"""Whether a preempted request is recomputed or swapped to the host pool, and what it finds there when it comes back.

Swapping copies the blocks out and in again; recomputing takes the prefill of all that the prefix cache is not expected
to keep. The cheaper one by the measured rates is chosen, recomputing when the two are equal, when nothing is known of
prefill, or when the host pool has no room. Expected to be kept are the leading blocks that others hold too: the
victim's own are the next to be evicted, for nothing else was left when it had to give way.

All blocks with computed tokens are copied, those that others hold as well: what lies in the host pool is then whole, so
that the return depends on nobody else (a shared prefix left on the device may be evicted while its request waits, and
what lies behind it would be worth nothing). Coming back, it takes what the prefix cache still has and copies in the
rest. It must not know the policy, nor copies anything.
"""

from collections.abc import Iterable
from typing import NamedTuple

from engine.core.host_pool import HostPool
from engine.core.kv_cache import BlockPool
from engine.core.limits import Limits
from engine.core.request import Request
from engine.core.step_time import StepTimeModel
from engine.core.swap_cost import SwapCost


class SwapChoice(NamedTuple):
    """
    host_blocks            where the victim's leading blocks are copied to; empty: it is recomputed
    swap_ns, recompute_ns  what each of the two is expected to take; 0 without a host pool, or where nothing is known
    num_host_blocks_free   before the choice
    """

    host_blocks: tuple[int, ...] = ()
    swap_ns: int = 0
    recompute_ns: int = 0
    num_host_blocks_free: int = 0


class Swapping:
    """Asked about each victim while it still has its blocks; keeps the host pool."""

    def __init__(self, limits: Limits, pool: BlockPool, step_times: StepTimeModel) -> None:
        self._block_size = limits.block_size
        self._pool = pool
        self._step_times = step_times
        self.host = HostPool(limits.swap_space_blocks)
        self.cost = SwapCost()

    def swap_out(self, victim: Request) -> SwapChoice:
        """Choose for `victim`; when it is swapped, its host blocks are taken."""
        num_free, num_tokens = self.host.num_free, victim.num_computed_tokens
        if self.host.num_blocks == 0 or num_tokens == 0:
            return SwapChoice(num_host_blocks_free=num_free)
        num_blocks = -(-num_tokens // self._block_size)
        num_kept = self._pool.num_leading_shared(victim.block_table)
        start = num_kept * self._block_size  # found blocks are full: no more tokens than are computed
        swap_ns = self.cost.predict_ns(2 * num_blocks - num_kept)
        recompute_ns = self._step_times.prefill_ns(start, num_tokens - start)
        if swap_ns >= recompute_ns:
            if recompute_ns:
                self.cost.doubt()
            return SwapChoice((), swap_ns, recompute_ns, num_free)
        if num_blocks > num_free:
            return SwapChoice((), swap_ns, recompute_ns, num_free)
        victim.host_blocks = self.host.allocate(num_blocks)
        victim.num_swapped_tokens = num_tokens
        self.cost.planned(num_blocks)
        return SwapChoice(tuple(victim.host_blocks), swap_ns, recompute_ns, num_free)

    def swap_in(self, request: Request, num_hit_blocks: int) -> tuple[int, ...]:
        """The host blocks to copy into its table behind the cache hits; it holds none afterwards.

        Its computed tokens reach as far as hits or copies do. Full blocks that come back can be found from now on: they
        are written before the step, and before any later decision of the pass is carried out.
        """
        host_blocks, num_tokens = request.host_blocks, request.num_swapped_tokens
        if not host_blocks:
            return ()
        self.give_up(request)
        copied = tuple(host_blocks[num_hit_blocks:])
        self.cost.planned(len(copied))
        request.num_computed_tokens = max(request.num_computed_tokens, num_tokens)
        for index in range(num_hit_blocks, num_tokens // self._block_size):
            self._pool.index(request.block_table[index], request.block_digests[index])
        return copied

    def give_up(self, request: Request) -> None:
        """Its host blocks are free again."""
        self.host.release(request.host_blocks)
        request.host_blocks = []
        request.num_swapped_tokens = 0

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """`requests` are all live ones. A swapped request has nothing on the device, and enough in the host pool."""
        every = list(requests)
        self.host.check_invariants([request.host_blocks for request in every if request.host_blocks])
        for request in every:
            assert len(request.host_blocks) == -(-request.num_swapped_tokens // self._block_size)
            assert not (request.host_blocks and request.block_table), f"request {request.number} is in two places"
