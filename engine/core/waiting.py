"""The waiting, new and preempted ones alike: the protected by age, then the others in lanes, as the policy orders.

A lane is a list kept sorted by rank; which lane's head is next, the policy says. With one lane (most policies) that is
one sorted queue. Every operation costs a few µs with 10,000 waiting.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush

from engine.core.policies.interface import Policy
from engine.core.request import Request

MAX_RERANKS = 8  # in a pass, 6 µs each with 10,000 waiting; then the head is taken as it is


class WaitingQueue:
    """Tells the policy who joins and leaves; ranks are its own to set."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lanes: dict[str, list[Request]] = {}  # none of them is empty
        self._protected: list[Request] = []
        self._unprotected: dict[int, Request] = {}  # by number
        self._numbers: list[int] = []  # heap: of all unprotected ones, and of some that are gone
        self._num_reranks_left = 0

    def __len__(self) -> int:
        return len(self._protected) + len(self._unprotected)

    @property
    def head(self) -> Request | None:
        """Who is to be admitted next."""
        if self._protected:
            return self._protected[0]
        return self._lanes[self._policy.first_lane()][0] if self._lanes else None

    @property
    def oldest(self) -> Request | None:
        """The unprotected one that arrived first."""
        numbers = self._numbers
        while numbers and numbers[0] not in self._unprotected:
            heappop(numbers)
        return self._unprotected[numbers[0]] if numbers else None

    def begin_pass(self) -> None:
        self._num_reranks_left = MAX_RERANKS

    def settled_head(self, now_ns: int) -> Request | None:
        """The head, after it was ranked anew and kept its place; the same as `head` under policies whose ranks stay."""
        if self._policy.reranks and self._lanes and not self._protected:
            self._settle(self._lanes[self._policy.first_lane()], now_ns)
        return self.head

    def _settle(self, lane: list[Request], now_ns: int) -> None:
        while self._num_reranks_left:
            self._num_reranks_left -= 1
            request = lane[0]
            rank = self._rank(request, now_ns)
            if rank == request.rank:
                return
            request.rank = rank
            if len(lane) == 1 or rank < lane[1].rank:
                return
            del lane[0]
            insort(lane, request, key=_rank_of)

    def add(self, request: Request, now_ns: int) -> None:
        if request.is_protected:
            insort(self._protected, request, key=_number_of)
            return
        self._unprotected[request.number] = request
        heappush(self._numbers, request.number)
        self._join_lane(request, now_ns)

    def remove(self, request: Request) -> None:
        if request.is_protected:
            self._protected.remove(request)
            return
        del self._unprotected[request.number]
        self._leave_lane(request)

    def protect(self, request: Request) -> None:
        """Out of its lane, before all that are not protected. The caller marks it as protected after this."""
        del self._unprotected[request.number]
        self._leave_lane(request)
        insort(self._protected, request, key=_number_of)

    def change_policy(self, policy: Policy, now_ns: int) -> None:
        """Everybody is ranked by another policy, which has been told of them."""
        self._policy = policy
        self._lanes = {}
        for _number, request in sorted(self._unprotected.items()):
            self._join_lane(request, now_ns)

    def _join_lane(self, request: Request, now_ns: int) -> None:
        self._policy.on_queued(request, now_ns)
        request.rank = self._rank(request, now_ns)
        insort(self._lanes.setdefault(self._policy.lane(request), []), request, key=_rank_of)

    def _leave_lane(self, request: Request) -> None:
        name = self._policy.lane(request)
        lane = self._lanes[name]
        index = bisect_left(lane, request.rank, key=_rank_of)
        assert lane[index] is request
        del lane[index]
        if not lane:
            del self._lanes[name]
        self._policy.on_left_queue(request)

    def _rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        """The number makes ranks total, so that a request is found by its own."""
        return (*self._policy.rank(request, now_ns), request.number)


def _rank_of(request: Request) -> tuple[int, ...]:
    return request.rank


def _number_of(request: Request) -> int:
    return request.number
