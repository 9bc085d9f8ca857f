"""A change of policy at run time: which parameters it may bring along, and the limits that hold after it.

Bounds of the queue may come along too: what waits already stays, whatever they are, and new ones are held against them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.core.errors import InvalidLimits
from engine.core.limits import Limits, normalized_weights

POLICY_PARAMETERS = (
    "priority_aging_ns",
    "tenant_weights",
    "prefill_token_price",
    "decode_token_price",
    "ttft_target_ms",
    "itl_target_ms",
    "max_passes_over",
    "max_preemptions",
)
QUEUE_BOUNDS = (
    "max_num_queued_reqs",
    "max_num_queued_tokens",
    "max_num_queued_reqs_per_tenant",
    "max_num_queued_tokens_per_tenant",
)
CHANGEABLE = (*POLICY_PARAMETERS, *QUEUE_BOUNDS)


def limits_after(limits: Limits, policy: str, parameters: Sequence[tuple[str, Any]]) -> Limits:
    """`limits` with that policy and those parameters, the others as they were. Raises InvalidLimits.

    Whether a policy of that name exists is known by who makes policies.
    """
    changes: dict[str, Any] = {}
    for name, value in parameters:
        if name not in CHANGEABLE:
            raise InvalidLimits(f"{name!r} cannot change while serving: choose of {', '.join(CHANGEABLE)}")
        changes[name] = normalized_weights(value) if name == "tenant_weights" else value
    return replace(limits, scheduling_policy=policy, **changes)
