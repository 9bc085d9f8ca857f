"""Mistakes in the queue's order and in who is let in."""

from tests.mutants.mutation import Mutation

_PLANNER = "engine/core/planner.py"
_WAITING = "engine/core/waiting.py"

WAITING = (
    Mutation(
        "one more runs than may",
        _PLANNER,
        "if len(self.running) >= self.limits.max_num_seqs:",
        "if len(self.running) > self.limits.max_num_seqs:",
    ),
    Mutation(
        "admissions go on after a preemption",
        _PLANNER,
        "            if self._step.somebody_gave_way:\n",
        "            if False:\n",
    ),
    Mutation(
        "blocks are taken before the hits are held",
        _PLANNER,
        "        self.pool.hold(hits)\n"
        "        blocks, evicted = self.pool.allocate(self._num_blocks_for(request.num_tokens) - len(hits))\n",
        "        blocks, evicted = self.pool.allocate(self._num_blocks_for(request.num_tokens) - len(hits))\n"
        "        self.pool.hold(hits)\n",
    ),
    Mutation(
        "victims are preempted although they cannot free enough",
        _PLANNER,
        "        if num_gained < num_short:\n            return False\n",
        "",
    ),
    Mutation(
        "a deferral is told in every pass",
        _PLANNER,
        "        if request.deferral is not None and request.deferral[0] is reason:\n            return\n",
        "",
    ),
    Mutation(
        "cached tokens are counted anew after a preemption",
        _PLANNER,
        ":\n            request.num_cached_tokens = request.num_computed_tokens\n",
        " or True:\n            request.num_cached_tokens = request.num_computed_tokens\n",
    ),
    Mutation(
        "the newest goes first among equals",
        _WAITING,
        "return (*self._policy.rank(request, now_ns), request.number)",
        "return (*self._policy.rank(request, now_ns), -request.number)",
    ),
    Mutation(
        "whoever is admitted keeps its place in the queue's account",
        _PLANNER,
        "        self.waiting.remove(request)\n        if request.status is Status.WAITING:\n"
        "            self.queue.remove(request)\n        self.pool",
        "        self.waiting.remove(request)\n        self.pool",
    ),
    Mutation(
        "the head is not ranked anew",
        _WAITING,
        "            if rank == request.rank:\n                return\n",
        "            return\n",
    ),
    Mutation(
        "a change of policy keeps the old ranks of the running",
        _PLANNER,
        "            request.rank = (*policy.rank(request, now_ns), request.number)\n",
        "            pass\n",
    ),
)
