"""Deadlines of the waiting: a request that has not begun by its deadline ends as expired.

The core has no clock, so it only says when it wants to be told the time (`next_ns`); the loop sends a TimerFired event
after that. A request that was admitted once has met its deadline, also when it is preempted later.
"""

from heapq import heappop, heappush

from engine.core.request import Request, Status


class Deadlines:
    """Requests by deadline; those that wait no more are dropped when they come to the front."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Request]] = []  # deadline, number

    @property
    def next_ns(self) -> int:
        """The earliest deadline of a request that still waits; 0: there is none."""
        while self._heap and self._heap[0][2].status is not Status.WAITING:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else 0

    def add(self, request: Request) -> None:
        if request.deadline_ns > 0:
            heappush(self._heap, (request.deadline_ns, request.number, request))

    def take_expired(self, now_ns: int) -> list[Request]:
        """Those whose deadline has passed, the earliest first."""
        expired: list[Request] = []
        while 0 < self.next_ns <= now_ns:
            expired.append(heappop(self._heap)[2])
        return expired
