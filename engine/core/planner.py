"""The planning pass: who computes what in the next step, who gives way, who is let in, and why the others wait.

One pass: 1. the running get their rows: each decode its token and the block for it, each prefill its part of what the
phases leave to prefills; when blocks run out a victim of the policy's choice is preempted, and leaves the step if it
was already placed in it. 2. Unless somebody was preempted, the waiting are admitted in order while places, budget and
blocks last; an admitted request gets blocks for all of its known tokens, so a prefill under way never waits for
blocks. 3. Whoever waits for a new reason is told.
"""

from collections.abc import Container
from typing import NamedTuple

from engine.core.admission import AdmissionControl, Refusal
from engine.core.decisions import (
    Decision,
    DeferReason,
    FinishReason,
    PreemptMode,
    PreemptReason,
    RequestAdmitted,
    RequestDeferred,
    RequestFinished,
    RequestPreempted,
    StarvationCause,
    StarvationSeen,
    StepPlanned,
)
from engine.core.kv_cache import BlockPool
from engine.core.limits import Limits
from engine.core.phases.interface import Phases, StepShare
from engine.core.policies.interface import Policy
from engine.core.queue_limits import QueueAccount
from engine.core.request import Request, Status
from engine.core.starvation import StarvationGuard
from engine.core.swapping import Swapping
from engine.core.waiting import WaitingQueue


class Planner:
    """Owns the running and the waiting; shares the pool with the core."""

    def __init__(self, limits: Limits, policy: Policy, phases: Phases, pool: BlockPool, swapping: Swapping) -> None:
        self.limits = limits
        self.policy = policy
        self.phases = phases
        self.pool = pool
        self.swapping = swapping
        self.running: list[Request] = []  # in order of admission
        self.waiting = WaitingQueue(policy)
        self.guard = StarvationGuard(limits)
        self.admission = AdmissionControl(limits, pool)
        self.queue = QueueAccount(limits)
        self._num_reserved_blocks = 0  # that the protected among the running may grow to
        self._now_ns = 0
        self._num_steps = 0
        self._num_passes = 0
        self._num_chains = 0
        self._unexplained: list[Request] = []  # queued since the last pass, or moved from the head
        self._last_head: Request | None = None
        self._step = _StepDraft()

    def enqueue(self, request: Request, now_ns: int) -> None:
        self._now_ns = now_ns
        self.policy.on_arrived(request, now_ns)
        self.queue.add(request)
        self._wait(request)

    def change_policy(self, limits: Limits, policy: Policy, live: list[Request], now_ns: int) -> None:
        """Another policy, or other parameters, from the next pass on. `live` are all live requests, oldest first."""
        before = self.policy
        self.limits, self.policy, self.guard = limits, policy, StarvationGuard(limits)
        self.phases.change_limits(limits)
        self.queue.change_limits(limits)
        for request in live:
            policy.on_arrived(request, now_ns)
        if limits.decision_rules > 1:
            policy.take_over(before)
        self.waiting.change_policy(policy, now_ns)
        for request in self.running:
            request.rank = (*policy.rank(request, now_ns), request.number)

    def finish(self, request: Request, reason: FinishReason) -> RequestFinished:
        """End a request in any live state: out of its queue, its blocks given up."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.admission.finished(request, reason)
            if request.is_protected:
                self._num_reserved_blocks -= self._most_blocks(request)
        else:
            self.waiting.remove(request)
            if request.status is Status.WAITING:
                self.queue.remove(request)
        num_blocks_freed = self.pool.release(request.block_table)
        request.block_table = []
        self.swapping.give_up(request)
        finished = RequestFinished(
            request.number,
            reason,
            request.num_prompt_tokens,
            request.num_output_tokens,
            max(0, request.num_cached_tokens),
            request.num_preemptions,
            num_blocks_freed,
        )
        request.apply(finished)
        self.policy.on_finished(request, reason)
        return finished

    def can_plan_ahead(self, ending: Container[int], num_ending: int) -> bool:
        """Somebody goes on after the step under way, whose rows are counted; and nobody would have to give way.

        ending   numbers of the running whose last token it draws
        """
        if num_ending == len(self.running):
            return False
        if self.pool.num_free < len(self.running) and self._num_lacking_blocks(ending) > self.pool.num_free:
            return False
        head = self.waiting.head
        if head is None or len(self.running) >= self.limits.max_num_seqs:
            return True
        if not self.policy.victims_for_admission(self._preemptible(), head):
            return True
        hits = self._find_hits(head)
        num_usable = self.pool.num_free - self.pool.num_evictable_among(hits)
        return self._num_blocks_for(head.num_tokens) - len(hits) <= num_usable

    def _num_lacking_blocks(self, ending: Container[int]) -> int:
        """That the running need for their next tokens; prefills have had theirs since they were admitted."""
        size = self.limits.block_size
        return sum(
            [
                request.num_computed_tokens >= len(request.block_table) * size
                for request in self.running
                if request.number not in ending
            ]
        )

    def plan_step(self, now_ns: int, ending: Container[int] | None = None) -> list[Decision]:
        """One pass. The last decision is the StepPlanned, unless there is nothing to compute.

        ending   for a pass ahead, which preempts nobody: numbers of those that the step under way brings to their ends
        """
        if not self.running and not self.waiting:
            return []
        decodes, prefills = self._running_by_phase()
        if ending:
            decodes = [request for request in decodes if request.number not in ending]
        share = self._share(decodes, prefills)
        self._step = _StepDraft(may_preempt=ending is None)
        self._now_ns = now_ns
        self._num_passes += 1
        self.waiting.begin_pass()
        if not share.decodes_wait:
            self._place_decodes(decodes)
        self._place_prefills(prefills, share.prefill_tokens)
        head_reason = self._admit_waiting()
        if not self._step.rows:  # the phase whose turn it is can compute nothing: the other may
            self._place_decodes(decodes)
            self._place_prefills(prefills, self.limits.max_num_batched_tokens)
            head_reason = self._admit_waiting()
        self._explain_waiting(head_reason)
        self._watch_the_oldest()
        step = self._step
        step.decisions.extend(self.policy.take_notices())
        if step.rows:
            step.decisions.append(self._close_step())
        else:
            num_left = len(self.running) + len(self.waiting)
            assert num_left == 0, f"{num_left} requests want a step, but the pass placed none of them"
        return step.decisions

    def _close_step(self) -> StepPlanned:
        step = self._step
        planned = StepPlanned(
            self._num_steps,
            tuple([(request.number, request.num_computed_tokens, count) for request, count in step.rows.items()]),
            tuple([(number, block) for number, blocks in step.new_blocks.items() for block in blocks]),
            tuple(step.evicted_blocks),
            len(self.running),
            len(self.waiting),
            self.pool.num_free,
            self.limits.max_num_batched_tokens - sum(step.rows.values()),
        )
        self._num_steps += 1
        return planned

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.limits.block_size)

    def _most_blocks(self, request: Request) -> int:
        """What it may grow to; one that would outgrow the pool alone ends there."""
        num_blocks = self._num_blocks_for(request.num_prompt_tokens + request.max_output_tokens)
        return min(num_blocks, self.limits.num_kv_blocks)

    def _preemptible(self) -> list[Request]:
        if not self._num_reserved_blocks:
            return self.running
        return [request for request in self.running if not request.is_protected]

    # ── 1. the running ───────────────────────────────────────────────────────────────────────────────────────────

    def _running_by_phase(self) -> tuple[list[Request], list[Request]]:
        """Decodes in order of admission, prefills in order of their ranks."""
        decodes: list[Request] = []
        prefills: list[Request] = []
        for request in self.running:
            (decodes if request.num_uncomputed_tokens == 1 else prefills).append(request)
        if len(prefills) > 1:
            prefills.sort(key=_rank)
        return decodes, prefills

    def _share(self, decodes: list[Request], prefills: list[Request]) -> StepShare:
        """A phase that is alone has the whole step."""
        token_budget = self.limits.max_num_batched_tokens
        if decodes and (prefills or self.waiting):
            return self.phases.share(decodes, prefills, token_budget)
        return self.phases.alone(token_budget)

    def _place_decodes(self, decodes: list[Request]) -> None:
        block_size, rows = self.limits.block_size, self._step.rows
        for request in decodes:
            if request.status is not Status.RUNNING:  # it has given way since
                continue
            num_tokens = request.num_computed_tokens + 1
            if num_tokens <= len(request.block_table) * block_size:  # no block boundary is crossed: by far the most
                rows[request] = 1
                continue
            num_blocks = self._num_blocks_for(num_tokens)
            if num_blocks > self.limits.num_kv_blocks:  # even alone it would not fit: nobody is preempted for it
                self._step.decisions.append(self.finish(request, FinishReason.KV_CACHE_EXHAUSTED))
                continue
            if self._make_room(request, num_blocks - len(request.block_table)):
                rows[request] = 1

    def _place_prefills(self, prefills: list[Request], prefill_tokens: int) -> None:
        """They have their blocks since they were admitted. What they leave is for those admitted in this pass."""
        step = self._step
        step.prefill_tokens_left = min(prefill_tokens, self.limits.max_num_batched_tokens - len(step.rows))
        for request in prefills:
            if step.prefill_tokens_left <= 0:
                break
            if request.status is Status.RUNNING:
                step.place_prefill(request)

    def _make_room(self, request: Request, num_blocks: int) -> bool:
        """Give `request` so many more blocks, preempting for them; False when it had to give way itself."""
        while num_blocks > self.pool.num_free:
            victim = self.policy.victim(self._preemptible(), request)
            self._preempt(victim, request, PreemptReason.OUT_OF_BLOCKS)
            if victim is request:
                return False
        if num_blocks > 0:
            blocks, evicted = self.pool.allocate(num_blocks)
            request.block_table.extend(blocks)
            self._step.new_blocks[request.number] = blocks
            self._step.evicted_blocks.extend(evicted)
        return True

    def _preempt(self, victim: Request, beneficiary: Request, reason: PreemptReason) -> None:
        assert self._step.may_preempt, "a pass ahead preempts nobody"
        choice = self.swapping.swap_out(victim)
        num_tokens_lost = 0 if choice.host_blocks else victim.num_computed_tokens
        num_blocks_freed = self.pool.release(victim.block_table)
        chain, chain_length = self._chain_of(victim)
        preempted = RequestPreempted(
            victim.number,
            beneficiary.number,
            reason,
            PreemptMode.SWAP if choice.host_blocks else PreemptMode.RECOMPUTE,
            num_blocks_freed,
            num_tokens_lost,
            chain,
            chain_length,
            *choice,
        )
        if beneficiary.chain_length < chain_length:  # of several that gave way for it, the longest chain goes on
            beneficiary.chain, beneficiary.chain_length = chain, chain_length
        victim.chain, victim.chain_length = -1, 0
        victim.apply(preempted)
        victim.block_table = []
        victim.num_once_computed = max(victim.num_once_computed, victim.num_computed_tokens)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        self.running.remove(victim)
        self.admission.running_changed()
        self._step.forget(victim)
        self._step.decisions.append(preempted)
        self._step.somebody_gave_way = True
        if self.guard.preempted(victim):
            self._say_starvation(victim, StarvationCause.PREEMPTED, self.guard.max_preemptions)
            victim.is_protected = True
        self._wait(victim)

    def recompute(self, victim: Request) -> RequestPreempted:
        """Outside a pass: its keys and values cannot be trusted. Neither its blocks nor a copy of them are kept."""
        preempted = RequestPreempted(
            victim.number,
            victim.number,
            PreemptReason.KV_MISMATCH,
            PreemptMode.RECOMPUTE,
            self.pool.release(victim.block_table),
            victim.num_computed_tokens,
            -1,
        )
        if victim.is_protected:  # it stays so; what it may grow to is reserved again when it comes back
            self._num_reserved_blocks -= self._most_blocks(victim)
        victim.apply(preempted)
        victim.block_table = []
        victim.num_once_computed = max(victim.num_once_computed, victim.num_computed_tokens)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        self.running.remove(victim)
        self.admission.running_changed()
        self._wait(victim)
        return preempted

    def _chain_of(self, victim: Request) -> tuple[int, int]:
        """The cascade that this preemption belongs to, and its length with it."""
        if victim.chain_length == 0:
            self._num_chains += 1
            return self._num_chains - 1, 1
        return victim.chain, victim.chain_length + 1

    def _wait(self, request: Request) -> None:
        request.queued_pass = self._num_passes
        request.deferral = None
        self.waiting.add(request, self._now_ns)
        self._unexplained.append(request)

    # ── 2. the waiting ───────────────────────────────────────────────────────────────────────────────────────────

    def _admit_waiting(self) -> "_HeadReason":
        """Admit while it goes; returns why the head of the queue stays."""
        while (candidate := self.waiting.settled_head(self._now_ns)) is not None:
            num_blocks = self._num_blocks_for(candidate.num_tokens)
            if num_blocks > self.limits.num_kv_blocks:  # it held the whole pool and gave way before its next token
                self._step.decisions.append(self.finish(candidate, FinishReason.KV_CACHE_EXHAUSTED))
                continue
            hits = self._find_hits(candidate)
            num_taken = num_blocks - len(hits) + self.pool.num_evictable_among(hits)  # of those that are free
            num_needed = num_taken if self.limits.decision_rules > 2 else num_blocks - len(hits)
            if self._step.somebody_gave_way:
                return _HeadReason(DeferReason.PREEMPTION, num_needed)
            if len(self.running) >= self.limits.max_num_seqs:
                return _HeadReason(DeferReason.MAX_NUM_SEQS, num_needed)
            if self._step.prefill_tokens_left <= 0:
                return _HeadReason(DeferReason.TOKEN_BUDGET, num_needed)
            num_reserved = self._num_reserved_blocks + self._most_blocks(candidate)
            if candidate.is_protected and num_reserved > self.limits.num_kv_blocks:
                return _HeadReason(DeferReason.RESERVED_BLOCKS, num_needed)
            num_short = num_taken - self.pool.num_free
            if num_short > 0:
                if not self._take_blocks_for(candidate, num_short, hits):
                    return _HeadReason(DeferReason.OUT_OF_BLOCKS, num_needed)
            elif refusal := self._refusal(candidate, num_taken):
                return _HeadReason(refusal.reason, num_needed, refusal.num_blocks_kept)
            self._admit(candidate, hits)
        return _HeadReason(DeferReason.BEHIND_ANOTHER)

    def _refusal(self, candidate: Request, num_needed: int) -> Refusal | None:
        """Admission control's, whom nobody has to heed that the policy lets preempt others, or that is protected."""
        refusal = None if candidate.is_protected else self.admission.refusal(candidate, num_needed, self.running)
        if refusal is None or self.policy.victims_for_admission(self._preemptible(), candidate):
            return None
        return refusal

    def _find_hits(self, request: Request) -> list[int]:
        """Cached blocks of its tokens. At least one token is left to compute: without a row there is no next token.

        None where log-probabilities of its prompt are wanted and not all told: they come of rows that are computed.
        """
        if request.wants_prompt_logprobs and request.num_output_tokens == 0:
            return []
        return self.pool.find_prefix(request.block_digests, (request.num_tokens - 1) // self.limits.block_size)

    def _take_blocks_for(self, candidate: Request, num_short: int, hits: list[int]) -> bool:
        """Preempt less urgent running requests for `candidate`, if together they can free enough beside its `hits`."""
        if not self._step.may_preempt:  # `can_plan_ahead` sees to it that the next pass may
            return False
        chosen: list[Request] = []
        num_gained = 0
        for victim in self.policy.victims_for_admission(self._preemptible(), candidate):
            if num_gained >= num_short:
                break
            chosen.append(victim)
            num_gained += self.pool.num_exclusive([block for block in victim.block_table if block not in hits])
        if num_gained < num_short:
            return False
        for victim in chosen:
            self._preempt(victim, candidate, PreemptReason.MORE_URGENT_WAITS)
        return True

    def _admit(self, request: Request, hits: list[int]) -> None:
        num_blocks_free = self.pool.num_free
        self.waiting.remove(request)
        if request.status is Status.WAITING:
            self.queue.remove(request)
        self.pool.hold(hits)
        blocks, evicted = self.pool.allocate(self._num_blocks_for(request.num_tokens) - len(hits))
        request.block_table = hits + blocks
        request.num_hit_blocks = len(hits)
        request.num_computed_tokens = len(hits) * self.limits.block_size
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = request.num_computed_tokens
        host_blocks = self.swapping.swap_in(request, len(hits))
        admitted = RequestAdmitted(
            request.number,
            tuple(request.block_table),
            len(hits),
            tuple(evicted),
            num_blocks_free,
            self._num_passes - request.queued_pass,
            host_blocks,
        )
        request.apply(admitted)
        self.policy.on_admitted(request, self._now_ns)
        if request.is_protected:
            self._num_reserved_blocks += self._most_blocks(request)
        self._step.youngest_admitted = max(self._step.youngest_admitted, request.number)
        self.running.append(request)
        self.admission.running_changed()
        self._step.decisions.append(admitted)
        self._step.place_prefill(request)

    def _watch_the_oldest(self) -> None:
        """Whoever was admitted in this pass may have passed it over."""
        watched = self.waiting.oldest
        if watched is None or watched.number > self._step.youngest_admitted:
            return
        if self.guard.passed_over(watched):
            self._say_starvation(watched, StarvationCause.PASSED_OVER, self.guard.max_passes_over)
            self.waiting.protect(watched)
            watched.is_protected = True

    def _say_starvation(self, request: Request, cause: StarvationCause, bound: int) -> None:
        self._step.decisions.append(
            StarvationSeen(request.number, cause, request.num_passes_over, request.num_preemptions, bound)
        )

    # ── 3. the reasons ───────────────────────────────────────────────────────────────────────────────────────────

    def _explain_waiting(self, head_reason: "_HeadReason") -> None:
        """Tell the head, and those who are newly behind it; whoever's reason stays is told nothing."""
        head = self.waiting.head
        if self._last_head is not head and self._last_head is not None:
            self._unexplained.append(self._last_head)
        if head is not None:
            self._defer(head, *head_reason)
            for request in self._unexplained:
                if request is not head and request.status in (Status.WAITING, Status.PREEMPTED):
                    self._defer(request, DeferReason.BEHIND_ANOTHER, behind=head.number)
        self._unexplained.clear()
        self._last_head = head

    def _defer(
        self, request: Request, reason: DeferReason, num_needed: int = 0, num_kept: int = 0, behind: int = -1
    ) -> None:
        if request.deferral is not None and request.deferral[0] is reason:
            return
        since = request.queued_pass if request.deferral is None else request.deferral[1]
        num_passes = 0 if request.deferral is None else self._num_passes - since
        request.deferral = (reason, self._num_passes)
        self._step.decisions.append(
            RequestDeferred(request.number, reason, num_needed, self.pool.num_free, behind, num_passes, num_kept)
        )


class _HeadReason(NamedTuple):
    """Why the head of the queue stays; blocks as in RequestDeferred."""

    reason: DeferReason
    num_blocks_needed: int = 0
    num_blocks_kept: int = 0


class _StepDraft:
    """What a pass has put together so far."""

    def __init__(self, *, may_preempt: bool = True) -> None:
        self.may_preempt = may_preempt
        self.decisions: list[Decision] = []
        self.rows: dict[Request, int] = {}  # request → tokens to compute
        self.new_blocks: dict[int, list[int]] = {}
        self.evicted_blocks: list[int] = []
        self.prefill_tokens_left = 0
        self.somebody_gave_way = False
        self.youngest_admitted = -1  # the highest number among those admitted

    def place_prefill(self, request: Request) -> None:
        """As much of it as the step has left for prefills."""
        count = self.rows[request] = min(self.prefill_tokens_left, request.num_uncomputed_tokens)
        self.prefill_tokens_left -= count

    def forget(self, request: Request) -> None:
        """A victim leaves the step it was placed in."""
        self.prefill_tokens_left += self.rows.pop(request, 0)
        self.new_blocks.pop(request.number, None)


def _rank(request: Request) -> tuple[int, ...]:
    return request.rank
