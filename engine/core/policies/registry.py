"""Policy names → policies. The name stands in the limits, and so in every recording's header."""

from engine.core.errors import UnknownPolicy
from engine.core.limits import Limits
from engine.core.policies.fcfs import FirstComeFirstServed
from engine.core.policies.interface import Policy
from engine.core.policies.priority import PriorityWithAging

POLICY_NAMES = [FirstComeFirstServed.name, PriorityWithAging.name]


def make_policy(limits: Limits) -> Policy:
    """The policy that `limits` name, with its parameters. Raises UnknownPolicy."""
    if limits.scheduling_policy == FirstComeFirstServed.name:
        return FirstComeFirstServed()
    if limits.scheduling_policy == PriorityWithAging.name:
        return PriorityWithAging(limits.priority_aging_ns)
    raise UnknownPolicy(limits.scheduling_policy, POLICY_NAMES)
