"""How much may wait: requests and prompt tokens, in all and of each tenant. Counted are those never admitted.

A preempted request waits again, but takes no place: it was let in once. A bound in tokens is no bar to a request that
finds nothing of its kind waiting, or a prompt longer than the bound could never be served. It must not know why anybody
waits, nor the order.
"""

from typing import NamedTuple

from engine.core.decisions import RejectReason
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.core.request import Request


class Overrun(NamedTuple):
    """The bound that one more request would break. asked, limit as in RequestRejected."""

    reason: RejectReason
    asked: int
    limit: int


class QueueAccount:
    """`add` who is queued for the first time, `remove` who is admitted for the first time or ends before."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._num_requests = 0
        self._num_tokens = 0
        self._of_tenant: dict[str, tuple[int, int]] = {}  # requests, tokens; only of tenants of whom somebody waits

    def change_limits(self, limits: Limits) -> None:
        """For those to come: what waits already stays, also where it is more than the new bounds allow."""
        self._limits = limits

    def add(self, request: Request) -> None:
        self._count(request, 1)

    def remove(self, request: Request) -> None:
        self._count(request, -1)

    def of_tenant(self, tenant: str) -> tuple[int, int]:
        """Requests and prompt tokens of the tenant that are queued."""
        return self._of_tenant.get(tenant, (0, 0))

    def overrun(self, event: RequestArrived) -> Overrun | None:
        """The first bound that it breaks, the tenant's own before the whole queue's; None when it may wait."""
        limits, num_tokens = self._limits, event.num_prompt_tokens
        requests, tokens = self.of_tenant(event.tenant)
        for reason, asked, limit, is_first in (
            (RejectReason.TENANT_QUEUE_FULL, requests + 1, limits.max_num_queued_reqs_per_tenant, False),
            (
                RejectReason.TENANT_QUEUE_TOKENS_FULL,
                tokens + num_tokens,
                limits.max_num_queued_tokens_per_tenant,
                requests == 0,
            ),
            (RejectReason.QUEUE_FULL, self._num_requests + 1, limits.max_num_queued_reqs, False),
            (
                RejectReason.QUEUE_TOKENS_FULL,
                self._num_tokens + num_tokens,
                limits.max_num_queued_tokens,
                self._num_requests == 0,
            ),
        ):
            if 0 < limit < asked and not is_first:
                return Overrun(reason, asked, limit)
        return None

    def _count(self, request: Request, sign: int) -> None:
        num_tokens = sign * request.num_prompt_tokens
        self._num_requests += sign
        self._num_tokens += num_tokens
        requests, tokens = self._of_tenant.get(request.tenant, (0, 0))
        if requests + sign == 0:
            del self._of_tenant[request.tenant]
        else:
            self._of_tenant[request.tenant] = (requests + sign, tokens + num_tokens)
