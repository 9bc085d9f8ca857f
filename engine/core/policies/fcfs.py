"""First come, first served: the order of arrival decides about everything.

The waiting are admitted in order of arrival, and under pressure the newest of the running gives way. A request can
only ever be passed over or preempted for older ones, of which there are finitely many, so it cannot starve.
"""

from collections.abc import Sequence

from engine.core.request import Request


class FirstComeFirstServed:
    name = "fcfs"

    def rank(self, request: Request) -> tuple[int, ...]:
        return (request.number,)

    def victim(self, running: Sequence[Request], beneficiary: Request) -> Request:
        return max(running, key=lambda request: request.rank)

    def victims_for_admission(self, running: Sequence[Request], candidate: Request) -> list[Request]:
        return []
