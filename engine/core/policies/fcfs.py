"""First come, first served: the order of arrival decides about everything.

The waiting are admitted in order of arrival, and under pressure the newest of the running gives way.

**Bound.** The head of the queue is the oldest of the waiting, and nobody is admitted before it, so nobody is passed
over by a younger one, and the starvation guard never has to act for that: of the theorem in `starvation.py` only the
part of the older ones remains. With O older live requests a request is admitted after at most O (N + 1) passes that
admit others, and (O (N + 1) + 1) W in all, N = max_preemptions. The oldest live request is never preempted.
"""

from engine.core.policies.interface import Policy
from engine.core.request import Request


class FirstComeFirstServed(Policy):
    name = "fcfs"

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        return ()
