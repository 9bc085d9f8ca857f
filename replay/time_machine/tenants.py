"""What each tenant has: requests that wait and run, queued tokens, and its counter where the policy counts service."""

from typing import NamedTuple

from engine.core.policies.fair import SCALE, FairShare
from engine.core.request import Status
from engine.core.scheduler import Core


class Tenant(NamedTuple):
    """
    num_queued, num_queued_tokens   never admitted: what the bounds of the queue count
    service                         `fair`: the virtual token counter, in tokens' prices by weight; None otherwise
    """

    name: str
    num_waiting: int
    num_running: int
    num_queued: int
    num_queued_tokens: int
    weight: int
    service: float | None


def tenants(core: Core) -> list[Tenant]:
    """Of those that have live requests, and those that the policy counts; by name."""
    policy = core.planner.policy
    counters = policy.counters if isinstance(policy, FairShare) else {}
    running: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for request in core.requests.values():
        counts = running if request.status is Status.RUNNING else waiting
        counts[request.tenant] = counts.get(request.tenant, 0) + 1
    weights = dict(core.limits.tenant_weights)
    return [
        Tenant(
            *(name, waiting.get(name, 0), running.get(name, 0), *core.planner.queue.of_tenant(name)),
            *(weights.get(name, 1), counters[name] / SCALE if name in counters else None),
        )
        for name in sorted({*running, *waiting, *counters})
    ]
