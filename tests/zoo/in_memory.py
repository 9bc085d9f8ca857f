"""Bugs that change what is read back from memory: a model with weights is served, and its answers go wrong."""

from tests.zoo.bug import Bug, limits, patch
from tests.zoo.loads import Load

_PLANNER = "engine/core/planner.py"
_RUNNER = "engine/execution/runner.py"
_BATCH = "engine/execution/batch.py"

IN_MEMORY = (
    Bug(
        "hit-on-an-unwritten-block",
        "a prompt's blocks can be found in the prefix cache as soon as they are given out, not once they are written",
        "vllm#37152",
        (
            patch(
                _PLANNER,
                "        request.block_table = hits + blocks\n",
                "        request.block_table = hits + blocks\n"
                "        for index in range(len(hits), request.num_prompt_tokens // self.limits.block_size):\n"
                "            self.pool.index(request.block_table[index], request.block_digests[index])\n",
            ),
        ),
        Load(limits(num_kv_blocks=60), num_requests=30, gap_ms=10, prefix=40, sharing=40, leaving=25, leaves_ms=12),
        True,
        "isolation-differs",
        "isolate {rec} --all",
        "execute",
        "A few answers are wrong, at temperature 0 too, and right when they are asked for again.",
        "Alone the request has another first token, so something reached it. The recording breaks a promise that needs "
        "no model to see: a prefix hit on a block of which only a part had been written. Whoever wrote it is "
        "named. A request that leaves in mid-prefill and one with its prefix are all it takes.",
    ),
    Bug(
        "abort-racing-a-step",
        "a cancelled request's blocks are indexed as if its prefill had been finished",
        "sglang#23392",
        (
            patch(
                _PLANNER,
                "        num_blocks_freed = self.pool.release(request.block_table)\n        request.block_table = []\n",
                "        if reason is FinishReason.CANCELLED:\n"
                "            for block, digest in zip(request.block_table, request.block_digests, strict=False):\n"
                "                self.pool.index(block, digest)\n"
                "        num_blocks_freed = self.pool.release(request.block_table)\n        request.block_table = []\n",
            ),
        ),
        Load(limits(num_kv_blocks=60), num_requests=30, gap_ms=10, prefix=40, sharing=40, leaving=25, leaves_ms=12),
        True,
        "isolation-differs",
        "isolate {rec} --all",
        "execute",
        "A client stops an answer and asks again; now and then the second answer is nonsense. Nobody can repeat it: "
        "it takes a cancel within a few milliseconds.",
        "The recording has the cancel where it was: between a chunk of the first request's prefill and the next. What "
        "is left after shrinking is a request that leaves in mid-prefill and one with the same prompt: the second hits "
        "blocks that the first never wrote.",
    ),
    Bug(
        "stale-block-after-preemption",
        "a preempted request keeps its old block table, and goes on with it when it comes back",
        "",
        (
            patch(
                _RUNNER,
                "            self._requests[decision.request].block_table = list(decision.block_ids)\n",
                "            held = self._requests[decision.request]\n"
                "            held.block_table += decision.block_ids[len(held.block_table) :]\n",
            ),
            patch(_RUNNER, "            self._requests[decision.request].block_table = []\n", "            pass\n"),
        ),
        Load(limits(num_kv_blocks=26), num_requests=24, gap_ms=20, output=(8, 30)),
        True,
        "isolation-differs",
        "isolate {rec} --all",
        "execute",
        "Under pressure answers drift off in the middle, those of innocent neighbours too.",
        "Every decision is right: `check` is equal on any build. What differs is what was done with them. The request "
        "that differs alone was preempted before, or had blocks of one that was; a build without the mistake executes "
        "the same plans to other tokens from that step on.",
    ),
    Bug(
        "late-output-after-preemption",
        "a prefill that is computed again emits a token at each chunk's end behind the prompt",
        "",
        (
            patch(
                _BATCH,
                "        return self.end == len(self.request.tokens)\n",
                "        return self.end >= self.request.num_prompt_tokens\n",
            ),
        ),
        Load(limits(num_kv_blocks=22, max_num_batched_tokens=10), num_requests=20, gap_ms=20, output=(12, 40)),
        True,
        "isolation-differs",
        "isolate {rec} --all",
        "execute",
        "Answers stutter: a word comes twice, and what follows makes no sense. Only on busy days.",
        "The request that differs was preempted and computed again in several chunks. Its recording breaks a promise: "
        "a token was emitted by a row that had not reached the last known token.",
    ),
    Bug(
        "swap-in-to-a-wrong-slot",
        "blocks that come back from the host pool are written over the prefix hits instead of behind them",
        "vllm#45387",
        (
            patch(
                _RUNNER,
                "        blocks = decision.block_ids[first : first + len(decision.host_blocks)]\n",
                "        blocks = decision.block_ids[first - first : len(decision.host_blocks)]\n",
            ),
        ),
        Load(
            limits(num_kv_blocks=24, swap_space_blocks=40),
            num_requests=30,
            gap_ms=14,
            prefix=24,
            sharing=80,
            output=(8, 30),
        ),
        True,
        "isolation-differs",
        "isolate {rec} --all",
        "execute",
        "With --swap-space on, some answers go wrong, of requests that were never swapped as well.",
        "The victim shares a prefix with a request that was swapped out and came back to find its first blocks in the "
        "cache. The decisions are right, the copy is not: a mended build executes them to other tokens.",
    ),
    Bug(
        "off-by-one-at-a-block-boundary",
        "a prompt that ends with a block and is all cached leaves no token to compute",
        "",
        (
            patch(
                _PLANNER,
                "(request.num_tokens - 1) // self.limits.block_size)",
                "request.num_tokens // self.limits.block_size)",
            ),
        ),
        Load(limits(), num_requests=30, gap_ms=10, prompt=(0, 30), prefix=16, sharing=50),
        True,
        "invariant-broken",
        "show {rec} --request {request}",
        "check",
        "Whole batches fail at once with a ValueError, every request in the step, a few times a day.",
        "The step that failed holds a row of no token. It is a request whose prompt is two whole blocks, both cached; "
        "shrinking leaves it and the one that had put them there.",
    ),
)
