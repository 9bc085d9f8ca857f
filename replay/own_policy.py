"""The recorded scheduling policy for replay: ours by name, an operator's own only when it is the very same source."""

from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.thawing import thaw
from engine.core.limits import Limits
from engine.core.policies.interface import PolicyFactory
from engine.core.policies.registry import make_policy
from engine.core.scheduler import Core
from engine.core.vocabulary import CoreKeyframe
from engine.own_policy import POLICY_DIGEST, PolicyNotLoaded, is_own_policy, load_own_policy, policy_factory
from recorder.header import Header
from replay.refusal import CannotCompare


def recorded_core(header: Header) -> Core:
    """A fresh core as the recorded one began. Raises CannotCompare: no such policy here, or another source."""
    return Core(Limits.from_dict(header.limits), recorded_policies(header))


def thawed_core(header: Header, keyframe: CoreKeyframe) -> Core:
    """The core as it was at the keyframe. Raises CannotCompare, also when the keyframe is none of ours."""
    try:
        return thaw(Limits.from_dict(header.limits), recorded_policies(header), keyframe.state)
    except KeyframeError as error:
        raise CannotCompare(
            f"a keyframe cannot be used: {error}", "begin at an earlier step, or at the start"
        ) from error


def recorded_policies(header: Header) -> PolicyFactory:
    """Raises CannotCompare as `recorded_core`."""
    name = Limits.from_dict(header.limits).scheduling_policy
    if not is_own_policy(name):
        return make_policy
    try:
        own = load_own_policy(name)
    except PolicyNotLoaded as error:
        raise CannotCompare(f"it was recorded under an operator's own policy, which is not here: {error}") from error
    recorded = str(header.environment.get(POLICY_DIGEST, ""))
    if own.sha256 != recorded:
        raise CannotCompare(
            f"it was recorded under the policy {name} of source {recorded[:16] or '(none)'}, here its source is "
            f"{own.sha256[:16]} (SHA-256)",
            "put the recorded version of its module on PYTHONPATH",
        )
    return policy_factory(own)
