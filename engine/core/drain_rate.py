"""How fast requests end, all of them and each tenant's: what a refused client is told to wait before it tries again.

A bound of the whole queue goes by everybody's ends; a tenant's own bound by that tenant's, for its queue drains as its
own requests end, whatever the others do. Until two of its own have ended it is told everybody's rate. What is waited
for is the end of all that is queued now. It must not know why anybody ended.
"""

from collections import OrderedDict, deque

from engine.core.decisions import RejectReason
from engine.core.request import Request

WINDOW = 32  # ends over which a rate is measured
MIN_RETRY_AFTER_MS, MAX_RETRY_AFTER_MS = 1_000, 60_000
MAX_TENANTS = 1_000  # whose ends are kept; then the one whose latest end is the oldest is forgotten

_TENANTS_OWN = (RejectReason.TENANT_QUEUE_FULL, RejectReason.TENANT_QUEUE_TOKENS_FULL)
_End = tuple[int, int]  # when, prompt tokens


class DrainRate:
    """`ended` for each end; `retry_after_ms` for all that wait, `retry_after_ms_of` for one tenant's."""

    def __init__(self) -> None:
        self._ends: deque[_End] = deque(maxlen=WINDOW)
        self._of_tenant: OrderedDict[str, deque[_End]] = OrderedDict()  # by latest end

    def ended(self, request: Request, now_ns: int) -> None:
        end, tenant = (now_ns, request.num_prompt_tokens), request.tenant
        self._ends.append(end)
        own = self._of_tenant.get(tenant)
        if own is None:
            own = self._of_tenant[tenant] = deque(maxlen=WINDOW)
        own.append(end)
        self._of_tenant.move_to_end(tenant)
        if len(self._of_tenant) > MAX_TENANTS:
            self._of_tenant.popitem(last=False)

    def retry_after_ms(self, num_waiting: int, now_ns: int) -> int:
        """When so many requests should have ended, at everybody's rate."""
        if len(self._ends) < 2:
            return MIN_RETRY_AFTER_MS
        mean_gap_ns = (now_ns - self._ends[0][0]) // len(self._ends)
        return _bounded_ms(mean_gap_ns * num_waiting)

    def retry_after_ms_of(
        self, tenant: str, reason: RejectReason, num_requests: int, num_tokens: int, now_ns: int
    ) -> int:
        """When the tenant's queue of so many requests and prompt tokens should have drained, as `reason` counts it."""
        ends = self._of_tenant.get(tenant, self._ends)
        if len(ends) < 2:
            ends = self._ends
        if len(ends) < 2:
            return MIN_RETRY_AFTER_MS
        if reason is RejectReason.TENANT_QUEUE_TOKENS_FULL:
            num_left, num_drained = num_tokens, sum([num_prompt_tokens for _ended_ns, num_prompt_tokens in ends])
        else:
            num_left, num_drained = num_requests, len(ends)
        return _bounded_ms((now_ns - ends[0][0]) * num_left // max(1, num_drained))


def is_tenants_own(reason: RejectReason) -> bool:
    """Whether the bound is one of the tenant's, not of the whole queue."""
    return reason in _TENANTS_OWN


def _bounded_ms(time_ns: int) -> int:
    return max(MIN_RETRY_AFTER_MS, min(time_ns // 1_000_000, MAX_RETRY_AFTER_MS))
