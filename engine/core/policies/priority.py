"""Priority classes 0 (most urgent) to 9, with aging.

A request of class p ranks as if it had arrived p × aging later than it did. Under pressure the highest rank gives way;
a waiting request may also take the blocks of running ones of a less urgent class that rank behind it.

**Bound.** A request of class p is passed over only by younger ones of a class q < p that arrive less than (p - q) ×
aging after it: within 9 × aging of its arrival it stands before everything that still comes, whatever the load. In
passes the starvation guard bounds it, however many arrive in that time: the theorem in `starvation.py` holds as it
stands there: with O older live requests at most A = (O + 1) B + O (N + 1) passes admit others first, at most (A + 1) W
pass in all, and nobody is preempted more than N times (B = max_passes_over, N = max_preemptions).
"""

from collections.abc import Sequence

from engine.core.policies.interface import Policy
from engine.core.request import Request


class PriorityWithAging(Policy):
    name = "priority"

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        return (request.arrival_ns + request.priority * self.limits.priority_aging_ns,)

    def victims_for_admission(self, running: Sequence[Request], candidate: Request) -> list[Request]:
        allowed = [r for r in running if r.priority > candidate.priority and r.rank > candidate.rank]
        return sorted(allowed, key=lambda request: request.rank, reverse=True)
