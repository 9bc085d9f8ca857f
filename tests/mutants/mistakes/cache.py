"""Mistakes in the pool of blocks and its prefix index."""

from tests.mutants.mutation import Mutation

_KV_CACHE = "engine/core/kv_cache.py"
_PLANNER = "engine/core/planner.py"
_SCHEDULER = "engine/core/scheduler.py"

CACHE = (
    Mutation(
        "who asks about its prompt takes hits, whose rows are not computed",
        _PLANNER,
        "        if request.wants_prompt_logprobs and request.num_output_tokens == 0:\n            return []\n",
        "",
    ),
    Mutation(
        "who wants no token is given one",
        _SCHEDULER,
        "            if request.max_output_tokens == 0:",
        "            if request.max_output_tokens < 0:",
    ),
    Mutation(
        "a block is given up though another request holds it",
        _KV_CACHE,
        "            if self._reference_counts[block] > 0:\n                continue\n",
        "",
    ),
    Mutation(
        "a prefix may have a hole",
        _KV_CACHE,
        "            if block is None:\n                break\n",
        "            if block is None:\n                continue\n",
    ),
    Mutation(
        "a hit does not count as a holder",
        _KV_CACHE,
        "                del self._evictable[block]\n            self._reference_counts[block] += 1\n",
        "                del self._evictable[block]\n                self._reference_counts[block] += 1\n",
    ),
    Mutation(
        "the block used last is evicted first",
        _KV_CACHE,
        "self._evictable.popitem(last=False)",
        "self._evictable.popitem(last=True)",
    ),
    Mutation(
        "an evicted block stays in the index",
        _KV_CACHE,
        "                del self._block_of_digest[self._digest_of_block.pop(block)]\n",
        "                self._digest_of_block.pop(block)\n",
    ),
    Mutation(
        "a prefix goes before what follows it",
        _KV_CACHE,
        "for block in reversed(blocks):",
        "for block in blocks:",
    ),
    Mutation(
        "the index ignores that caching is off",
        _KV_CACHE,
        "if self._enable_prefix_caching and digest not in",
        "if digest not in",
    ),
    Mutation(
        "the newest block of equal contents is the indexed one",
        _KV_CACHE,
        "digest not in self._block_of_digest and block not in self._digest_of_block",
        "block not in self._digest_of_block",
    ),
    Mutation(
        "a victim's shared blocks count as gained",
        _KV_CACHE,
        "if self._reference_counts[block] == 1)",
        "if self._reference_counts[block] >= 1)",
    ),
    Mutation(
        "evictable hits count as free too",
        _PLANNER,
        "num_short = num_taken - self.pool.num_free",
        "num_short = num_blocks - len(hits) - self.pool.num_free",
    ),
    Mutation(
        "a block is indexed before its last token is written",
        _SCHEDULER,
        "range(start // block_size, end // block_size)",
        "range(start // block_size, min(-(-end // block_size), len(request.block_digests)))",
    ),
    Mutation(
        "a fully cached prompt leaves no token to compute",
        _PLANNER,
        "(request.num_tokens - 1) // self.limits.block_size)",
        "request.num_tokens // self.limits.block_size)",
    ),
)
