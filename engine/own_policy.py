"""An operator's own scheduling policy, named `module:Class`: the class, and a digest of the source it came from.

The core imports nothing by name, so whoever builds a core makes its policies with `policy_factory`. The digest goes
into the recording's header: replay runs the policy again, and must know whether it is the same one. It is taken over
the module's whole file, since the class may use what stands beside it; what the module imports is not in it.
"""

import hashlib
import importlib
from pathlib import Path
from typing import NamedTuple

from engine.core.errors import EngineError
from engine.core.limits import Limits
from engine.core.policies.interface import Policy, PolicyFactory
from engine.core.policies.registry import make_policy

POLICY_DIGEST = "scheduling_policy_sha256"  # its name in the header's `environment`


class PolicyNotLoaded(EngineError):
    """An operator's own policy cannot be used: why, and what to do."""


class OwnPolicy(NamedTuple):
    """name: module:Class; sha256: hex digest of the module's file."""

    name: str
    policy: type[Policy]
    sha256: str


def is_own_policy(name: str) -> bool:
    return ":" in name


def load_own_policy(name: str) -> OwnPolicy:
    """Import it. Raises PolicyNotLoaded."""
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever its code raises
        raise PolicyNotLoaded(
            f"scheduling policy {name}: module {module_name} cannot be imported ({type(error).__name__}: {error}): "
            "install it, or put its folder on PYTHONPATH"
        ) from error
    policy = getattr(module, class_name, None)
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise PolicyNotLoaded(
            f"scheduling policy {name}: {module_name} has no class {class_name} derived from "
            "engine.core.policies.interface.Policy: see the interface there"
        )
    if module.__file__ is None:
        raise PolicyNotLoaded(f"scheduling policy {name}: {module_name} is no file, so its source has no digest")
    return OwnPolicy(name, policy, hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest())


def policy_factory(own: OwnPolicy | None) -> PolicyFactory:
    """Makes ours, and `own` where it is asked for by its name."""

    def make(limits: Limits) -> Policy:
        if own is not None and limits.scheduling_policy == own.name:
            return own.policy(limits)
        return make_policy(limits)

    return make
