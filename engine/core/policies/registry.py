"""Policy names → policies. The name stands in the limits, and so in every recording's header."""

from engine.core.errors import UnknownPolicy
from engine.core.limits import Limits
from engine.core.policies.deadline import EarliestDeadlineFirst
from engine.core.policies.fair import FairShare
from engine.core.policies.fcfs import FirstComeFirstServed
from engine.core.policies.interface import Policy
from engine.core.policies.priority import PriorityWithAging
from engine.core.policies.shortest import ShortestFirst

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (FirstComeFirstServed, PriorityWithAging, FairShare, ShortestFirst, EarliestDeadlineFirst)
}
POLICY_NAMES = [*POLICIES]


def make_policy(limits: Limits) -> Policy:
    """The policy that `limits` name, with its parameters. Raises UnknownPolicy.

    An operator's own, `module:Class`, is not known here: the core imports nothing by name. Who builds a core hands in
    a factory that knows it.
    """
    policy = POLICIES.get(limits.scheduling_policy)
    if policy is None:
        raise UnknownPolicy(limits.scheduling_policy, POLICY_NAMES)
    return policy(limits)
