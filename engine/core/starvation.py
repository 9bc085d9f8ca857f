"""The starvation guard, common to all policies: whoever was passed over or preempted too often becomes protected.

Watched is the oldest waiting request that is not protected yet (the smallest number). A pass that admits a younger
one passes it over; after `max_passes_over` of them, or after `max_preemptions` preemptions, a request is *protected*
for the rest of its life: it goes before all unprotected ones (protected ones in order of arrival), nobody else is
admitted before it, and it is never preempted. So that this can be kept, it is admitted only when the blocks it may
grow to, summed over the protected that run, fit the pool. Only one request is watched at a time: under overload the
guard takes at most one in `max_passes_over` + 1 admissions from the policy's order, and does not turn it into another.

**Theorem.** Let n = max_num_seqs, M = max_model_len, B = max_passes_over, N = max_preemptions, and let r find O older
live requests when it arrives. Assume: prompt and output have at most M tokens together (the core refuses others); the
pool holds every request alone (the core refuses it, or ends it); every step computes a token; admission is not held
back while nobody runs. (Planned ahead, a step may compute none: all its rows may be of requests that ended in the step
before. Read M + 1 for M then: each request leaves at most one such row behind.) Then, whatever arrives, whatever the
policy ranks and however the phases share a step,

    1. r is preempted at most N times;
    2. r is admitted after at most A = (O + 1) B + O (N + 1) passes that admit others, and after at most (A + 1) W
       passes in all, W = n M.

*Proof.* 1: The N-th preemption protects r. A protected request is no victim: when one needs a block, either an
unprotected one runs, which gives way, or only protected ones do, whose full needs fit the pool together.
2: While nobody is admitted, the running only become fewer, and none of their tokens is computed twice, for a preempted
one leaves them. They have n M tokens at most, and each step computes one: within W such passes nobody runs, and the
head of the queue, which fits the empty pool, is admitted. Now count the passes that admit others while r waits. If one
admits a request younger than the watched one, it passes that one over: the watched one is r or older, and each is
passed over at most B times in its life before it is protected, which makes (O + 1) B. All others admit only requests
older than r (before a protected r only older protected ones go): each is admitted at most N + 1 times, which makes
O (N + 1).

It must not know ranks, nor who admits.
"""

from engine.core.limits import Limits
from engine.core.request import Request


class StarvationGuard:
    """Counts, and says when a request has to be protected."""

    def __init__(self, limits: Limits) -> None:
        self.max_passes_over = limits.max_passes_over
        self.max_preemptions = limits.max_preemptions

    def passed_over(self, watched: Request) -> bool:
        """A pass admitted a younger request than the watched one. True: it has to be protected."""
        watched.num_passes_over += 1
        return watched.num_passes_over >= self.max_passes_over

    def preempted(self, request: Request) -> bool:
        """It was preempted once more. True: it has to be protected."""
        return request.num_preemptions >= self.max_preemptions


def max_passes_without_admission(limits: Limits) -> int:
    """W of the theorem: passes in a row that may admit nobody though somebody waits."""
    return limits.max_num_seqs * (limits.max_model_len + limits.async_scheduling)


def max_admitting_passes(limits: Limits, num_older: int) -> int:
    """A of the theorem: passes that may admit others while a request waits that found `num_older` live ones."""
    return (num_older + 1) * limits.max_passes_over + num_older * (limits.max_preemptions + 1)


def max_wait_in_passes(limits: Limits, num_older: int) -> int:
    """The theorem's bound on a wait, in passes of any kind."""
    return (max_admitting_passes(limits, num_older) + 1) * max_passes_without_admission(limits)
