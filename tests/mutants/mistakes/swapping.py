"""Mistakes in swapping: the host pool, whom it is for, and what copies cost."""

from tests.mutants.mutation import Mutation

_SWAPPING = "engine/core/swapping.py"
_HOST_POOL = "engine/core/host_pool.py"
_SWAP_COST = "engine/core/swap_cost.py"
_PLANNER = "engine/core/planner.py"

SWAPPING = (
    Mutation(
        "a victim is swapped although copies are slower",
        _SWAPPING,
        "        if swap_ns >= recompute_ns:\n",
        "        if swap_ns > 2**62:\n",
    ),
    Mutation(
        "only the way out is counted as a cost",
        _SWAPPING,
        "self.cost.predict_ns(2 * num_blocks - num_kept)",
        "self.cost.predict_ns(num_blocks - num_kept)",
    ),
    Mutation(
        "a shared prefix counts as lost with its victim",
        _SWAPPING,
        "        start = num_kept * self._block_size",
        "        start = 0 * num_kept * self._block_size",
    ),
    Mutation(
        "a victim's last block, half full, is left behind",
        _SWAPPING,
        "        num_blocks = -(-num_tokens // self._block_size)\n        num_kept",
        "        num_blocks = num_tokens // self._block_size\n        num_kept",
    ),
    Mutation(
        "a swapped request copies in what the cache has too",
        _SWAPPING,
        "        copied = tuple(host_blocks[num_hit_blocks:])\n",
        "        copied = tuple(host_blocks)\n",
    ),
    Mutation(
        "what came back is computed again",
        _SWAPPING,
        "        request.num_computed_tokens = max(request.num_computed_tokens, num_tokens)\n",
        "",
    ),
    Mutation(
        "blocks that came back cannot be found",
        _SWAPPING,
        "            self._pool.index(request.block_table[index], request.block_digests[index])\n",
        "            pass\n",
    ),
    Mutation(
        "a host block is kept by who is gone",
        _SWAPPING,
        "        self.host.release(request.host_blocks)\n",
        "",
    ),
    Mutation(
        "whoever has come back is still told to lie in the host pool",
        _SWAPPING,
        "        request.num_swapped_tokens = 0\n",
        "",
    ),
    Mutation(
        "who ends while swapped keeps its host blocks",
        _PLANNER,
        "        self.swapping.give_up(request)\n        finished",
        "        finished",
    ),
    Mutation(
        "the host pool gives out a block too many",
        _SWAPPING,
        "        if num_blocks > num_free:\n",
        "        if num_blocks > num_free + 1:\n",
    ),
    Mutation(
        "host blocks are given out twice",
        _HOST_POOL,
        "return [self._free.popleft() for _ in range(count)]",
        "return [self._free[index] for index in range(count)]",
    ),
    Mutation(
        "copies on the way in are not counted",
        _SWAPPING,
        "        self.cost.planned(len(copied))\n",
        "",
    ),
    Mutation(
        "copies of an unmeasured step count for the next",
        _SWAP_COST,
        "num_blocks = self.take_planned()",
        "num_blocks = self._num_planned",
    ),
    Mutation(
        "a rate that speaks against swapping is believed for ever",
        _SWAP_COST,
        "        self._time -= self._time >> _DOUBT_BITS\n",
        "        pass\n",
    ),
    Mutation(
        "an old rate outweighs what was measured since",
        _SWAP_COST,
        "        self._time += (min(swap_ns, MAX_COPY_NS) << _SCALE_BITS) - (self._time >> _FORGETTING_BITS)\n",
        "        self._time += min(swap_ns, MAX_COPY_NS) << _SCALE_BITS\n",
    ),
    Mutation(
        "a swapped victim's tokens are told as lost",
        _PLANNER,
        "num_tokens_lost = 0 if choice.host_blocks else victim.num_computed_tokens",
        "num_tokens_lost = victim.num_computed_tokens",
    ),
    Mutation(
        "what lies in the host pool is work left to compute",
        "engine/core/policies/shortest.py",
        "num_uncomputed = request.num_uncomputed_tokens - request.num_swapped_tokens",
        "num_uncomputed = request.num_uncomputed_tokens",
    ),
)
