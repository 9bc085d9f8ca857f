"""Priority classes 0 (most urgent) to 9, with aging.

A request of class p ranks as if it had arrived p × aging later than it did. So a request of any class is passed over
only by requests that arrive within p × aging after it: the wait behind more urgent work is bounded, and no class
starves. Under pressure the highest rank gives way; a waiting request may also take the blocks of running ones of a
less urgent class that rank behind it.
"""

from collections.abc import Sequence

from engine.core.request import Request


class PriorityWithAging:
    name = "priority"

    def __init__(self, aging_ns: int) -> None:
        self._aging_ns = aging_ns

    def rank(self, request: Request) -> tuple[int, ...]:
        return (request.arrival_ns + request.priority * self._aging_ns, request.number)

    def victim(self, running: Sequence[Request], beneficiary: Request) -> Request:
        return max(running, key=lambda request: request.rank)

    def victims_for_admission(self, running: Sequence[Request], candidate: Request) -> list[Request]:
        allowed = [r for r in running if r.priority > candidate.priority and r.rank > candidate.rank]
        return sorted(allowed, key=lambda request: request.rank, reverse=True)
