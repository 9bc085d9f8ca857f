"""The waiting: requests in the order of their policy's ranks, new and preempted ones alike."""

from bisect import bisect_left, insort

from engine.core.request import Request, Status


def _rank(request: Request) -> tuple[int, ...]:
    return request.rank


class WaitingQueue:
    """A list kept sorted by rank. Ranks are total, so a request is found by its own."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self.num_never_admitted = 0

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def head(self) -> Request | None:
        return self._requests[0] if self._requests else None

    def add(self, request: Request) -> None:
        insort(self._requests, request, key=_rank)
        self.num_never_admitted += request.status is Status.WAITING

    def remove(self, request: Request) -> None:
        """Called while the request still has the status it waits with."""
        index = bisect_left(self._requests, request.rank, key=_rank)
        assert self._requests[index] is request
        del self._requests[index]
        self.num_never_admitted -= request.status is Status.WAITING
