"""Mistakes that a scheduler and its cache could have, each as a replacement of text in one file.

Every one is a real mistake: it breaks a promise, or changes what is recorded about it. A replacement that does not
occur exactly once is an error, so that the list follows the code.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """`old` occurs once in `file`."""

    name: str
    file: str
    old: str
    new: str


_KV_CACHE = "engine/core/kv_cache.py"
_PLANNER = "engine/core/planner.py"
_SCHEDULER = "engine/core/scheduler.py"
_WAITING = "engine/core/waiting.py"
_ADMISSION = "engine/core/admission.py"
_THRASH = "engine/core/thrash.py"
_QUEUE_LIMITS = "engine/core/queue_limits.py"
_POLICIES = "engine/core/policies"

MUTATIONS = (
    # ── the cache ────────────────────────────────────────────────────────────────────────────────────────────────
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
        "(self.pool.num_free - self.pool.num_evictable_among(hits))",
        "self.pool.num_free",
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
    # ── the running ──────────────────────────────────────────────────────────────────────────────────────────────
    Mutation(
        "a block too few at a boundary",
        _PLANNER,
        "if num_tokens <= len(request.block_table) * block_size:",
        "if num_tokens <= len(request.block_table) * block_size + 1:",
    ),
    Mutation(
        "blocks are rounded down",
        _PLANNER,
        "return -(-num_tokens // self.limits.block_size)",
        "return num_tokens // self.limits.block_size",
    ),
    Mutation(
        "a victim stays in the step it was placed in",
        _PLANNER,
        "        self._step.forget(victim)\n",
        "",
    ),
    Mutation(
        "a victim's part of the budget is lost",
        _PLANNER,
        "self.prefill_tokens_left += self.rows.pop(request, 0)",
        "self.rows.pop(request, 0)",
    ),
    Mutation(
        "a victim's new blocks stay in the plan",
        _PLANNER,
        "        self.new_blocks.pop(request.number, None)\n",
        "",
    ),
    Mutation(
        "a decode that gave way is placed all the same",
        _PLANNER,
        "            if request.status is not Status.RUNNING:  # it has given way since\n                continue\n",
        "",
    ),
    Mutation(
        "a prefill that gave way is placed all the same",
        _PLANNER,
        "            if request.status is Status.RUNNING:\n                step.place_prefill(request)\n",
        "            step.place_prefill(request)\n",
    ),
    Mutation(
        "decodes are not taken off the budget",
        _PLANNER,
        "min(prefill_tokens, self.limits.max_num_batched_tokens - len(step.rows))",
        "min(prefill_tokens, self.limits.max_num_batched_tokens)",
    ),
    Mutation(
        "a preempted request keeps what it had computed",
        _PLANNER,
        "        victim.num_computed_tokens = 0\n",
        "",
    ),
    Mutation(
        "a preemption is not counted",
        _PLANNER,
        "        victim.num_preemptions += 1\n",
        "",
    ),
    Mutation(
        "a cascade's chain is not handed on",
        _PLANNER,
        "            beneficiary.chain, beneficiary.chain_length = chain, chain_length\n",
        "            beneficiary.chain = chain\n",
    ),
    Mutation(
        "a prefill is placed beyond the budget left",
        _PLANNER,
        "min(self.prefill_tokens_left, request.num_uncomputed_tokens)",
        "request.num_uncomputed_tokens",
    ),
    Mutation(
        "nobody computes when the phase on turn cannot",
        _PLANNER,
        "        if not self._step.rows:  # the phase",
        "        if False:  # the phase",
    ),
    # ── the waiting ──────────────────────────────────────────────────────────────────────────────────────────────
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
        "        if request.num_preemptions == 0:\n            request.num_cached_tokens",
        "        if True:\n            request.num_cached_tokens",
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
    # ── the guard ────────────────────────────────────────────────────────────────────────────────────────────────
    Mutation(
        "a protected request may be preempted",
        _PLANNER,
        "        return [request for request in self.running if not request.is_protected]\n",
        "        return self.running\n",
    ),
    Mutation(
        "protected requests are admitted beyond what they may grow to",
        _PLANNER,
        "if candidate.is_protected and num_reserved > self.limits.num_kv_blocks:",
        "if False:",
    ),
    Mutation(
        "the reservation of a protected request is never given back",
        _PLANNER,
        "                self._num_reserved_blocks -= self._most_blocks(request)\n",
        "                pass\n",
    ),
    Mutation(
        "the guard acts a pass too late",
        "engine/core/starvation.py",
        "return watched.num_passes_over >= self.max_passes_over",
        "return watched.num_passes_over > self.max_passes_over",
    ),
    Mutation(
        "the guard allows a preemption too many",
        "engine/core/starvation.py",
        "return request.num_preemptions >= self.max_preemptions",
        "return request.num_preemptions > self.max_preemptions",
    ),
    Mutation(
        "the youngest is watched instead of the oldest",
        _PLANNER,
        "if watched is None or watched.number > self._step.youngest_admitted:",
        "if watched is None or watched.number < self._step.youngest_admitted:",
    ),
    Mutation(
        "a protected request waits in its lane too",
        _WAITING,
        "        del self._unprotected[request.number]\n        self._leave_lane(request)\n        insort(",
        "        del self._unprotected[request.number]\n        insort(",
    ),
    # ── admission and thrashing ──────────────────────────────────────────────────────────────────────────────────
    Mutation(
        "the watermark is a block too low",
        _ADMISSION,
        "if self._pool.num_free - num_needed < watermark_blocks:",
        "if self._pool.num_free - num_needed < watermark_blocks - 1:",
    ),
    Mutation(
        "expected growth is forgotten",
        _ADMISSION,
        "own_tokens + count * (left + size // 2)",
        "own_tokens",
    ),
    Mutation(
        "a refusal outlives the end of those that caused it",
        _ADMISSION,
        '(While nobody does, all grow as was expected of them.)"""\n        self._refused = None\n',
        '(While nobody does, all grow as was expected of them.)"""\n',
    ),
    Mutation(
        "lengths are learned from cancelled requests",
        _ADMISSION,
        "        if reason in _OWN_ENDS:\n",
        "        if True:\n",
    ),
    Mutation(
        "thrashing ends as soon as it falls below the bound",
        _THRASH,
        "2 * share < self._bound",
        "share < self._bound",
    ),
    Mutation(
        "the watermark is never raised",
        _THRASH,
        "max(first, 2 * self.watermark_blocks)",
        "self.watermark_blocks",
    ),
    Mutation(
        "a recomputed token counts as new",
        _SCHEDULER,
        "total += min(start + count, request.num_once_computed) - start",
        "total += 0",
    ),
    # ── the core ─────────────────────────────────────────────────────────────────────────────────────────────────
    Mutation(
        "a token too many",
        _SCHEDULER,
        "elif request.num_output_tokens >= request.max_output_tokens:",
        "elif request.num_output_tokens > request.max_output_tokens:",
    ),
    Mutation(
        "a request whose logits were not finite goes on",
        _SCHEDULER,
        "            if flag == FinishFlag.ERROR:\n",
        "            if False:\n",
    ),
    Mutation(
        "a failed step takes only its first request with it",
        _SCHEDULER,
        "for number, _start, _count in plan.rows if number in self.requests]",
        "for number, _start, _count in plan.rows[:1] if number in self.requests]",
    ),
    Mutation(
        "a name in use is given out again",
        _SCHEDULER,
        "event.request_id in self._live_ids or event.request in self.requests,",
        "event.request in self.requests,",
    ),
    Mutation(
        "a name stays taken after its request",
        _SCHEDULER,
        "        del self._live_ids[request.request_id]\n",
        "",
    ),
    Mutation(
        "the queue takes one too many",
        _QUEUE_LIMITS,
        "self._num_requests + 1, limits.max_num_queued_reqs,",
        "self._num_requests, limits.max_num_queued_reqs,",
    ),
    Mutation(
        "a tenant's queue takes one too many",
        _QUEUE_LIMITS,
        "requests + 1, limits.max_num_queued_reqs_per_tenant,",
        "requests, limits.max_num_queued_reqs_per_tenant,",
    ),
    Mutation(
        "who ends in the queue keeps its place in the account",
        _PLANNER,
        "            if request.status is Status.WAITING:\n                self.queue.remove(request)\n",
        "",
    ),
    Mutation(
        "a preempted request expires",
        "engine/core/deadlines.py",
        "self._heap[0][2].status is not Status.WAITING:",
        "self._heap[0][2].status is Status.FINISHED:",
    ),
    Mutation(
        "a deadline passes a moment too late",
        "engine/core/deadlines.py",
        "while 0 < self.next_ns <= now_ns:",
        "while 0 < self.next_ns < now_ns:",
    ),
    Mutation(
        "a drain takes new requests",
        _SCHEDULER,
        "            (self._is_draining, RejectReason.DRAINING, 0, 0),\n",
        "",
    ),
    # ── policies and phases ──────────────────────────────────────────────────────────────────────────────────────
    Mutation(
        "aging works backwards",
        f"{_POLICIES}/priority.py",
        "request.arrival_ns + request.priority * self.limits.priority_aging_ns",
        "request.arrival_ns - request.priority * self.limits.priority_aging_ns",
    ),
    Mutation(
        "the urgent preempt their own class",
        f"{_POLICIES}/priority.py",
        "if r.priority > candidate.priority and",
        "if r.priority >= candidate.priority and",
    ),
    Mutation(
        "an idle tenant saves up credit",
        f"{_POLICIES}/fair.py",
        "            self.counters[tenant] = max(self.counters[tenant], self._floor())\n",
        "            pass\n",
    ),
    Mutation(
        "emitted tokens cost nothing",
        f"{_POLICIES}/fair.py",
        "            counters[request.tenant] += costs[request.tenant]\n",
        "            pass\n",
    ),
    Mutation(
        "what is computed again is charged again",
        f"{_POLICIES}/fair.py",
        "        if request.num_preemptions == 0:\n",
        "        if True:\n",
    ),
    Mutation(
        "lengths are never learned",
        f"{_POLICIES}/shortest.py",
        "        if reason in _OWN_ENDS:\n",
        "        if False:\n",
    ),
    Mutation(
        "nobody is demoted",
        f"{_POLICIES}/deadline.py",
        "            if expected_ns > due_ns:\n",
        "            if False:\n",
    ),
    Mutation(
        "a demotion outlives the wait",
        f"{_POLICIES}/deadline.py",
        "        self._demoted.pop(request.number, None)\n",
        "        pass\n",
    ),
    Mutation(
        "the floor of a chunk is forgotten",
        "engine/core/phases/adaptive.py",
        "max(self._min_prefill_tokens, step_times.prefill_tokens_within(spare_ns, start, token_budget))",
        "step_times.prefill_tokens_within(spare_ns, start, token_budget)",
    ),
    Mutation(
        "prefill's share is decode's",
        "engine/core/phases/pools.py",
        "max(1, step_ns) * (1000 - self._prefill_share)",
        "max(1, step_ns) * self._prefill_share",
    ),
    Mutation(
        "a weight may be negative",
        "engine/core/step_time.py",
        "weights[i] = max(0, weights[i] + rest // products[i])",
        "weights[i] = weights[i] + rest // products[i]",
    ),
)
