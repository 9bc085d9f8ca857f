"""The other settings: recorded limits with changes, the core they make, and what becomes of recorded changes of policy.

A setting that was asked for holds throughout: a policy change that was recorded cannot undo it, but the rest of that
change still happens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from engine.core.events import PolicyChanged
from engine.core.limits import Limits
from engine.core.policies.interface import PolicyFactory
from engine.core.policies.registry import make_policy
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.own_policy import POLICY_DIGEST, is_own_policy, load_own_policy, policy_factory
from recorder.header import Header
from replay.own_policy import recorded_core
from replay.refusal import CannotCompare


@dataclass(frozen=True, slots=True)
class Scenario:
    """
    recorded   the limits of the recording
    limits     those asked for
    """

    header: Header
    recorded: Limits
    limits: Limits
    make_policy: PolicyFactory
    policy_digest: str

    def core(self) -> Core:
        """A fresh one. Raises InvalidLimits, UnknownPolicy, or CannotCompare when nothing was changed and the recorded
        policy is not here."""
        return recorded_core(self.header) if self.limits == self.recorded else Core(self.limits, self.make_policy)

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Limit → (recorded, asked for)."""
        pairs = {item.name: (getattr(self.recorded, item.name), getattr(self.limits, item.name)) for item in _FIELDS}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def event(self, event: Any) -> Any:
        """The event as it happens under these settings."""
        if not isinstance(event, PolicyChanged):
            return event
        changed = self.changes()
        kept = tuple([(name, value) for name, value in event.parameters if name not in changed])
        policy = self.limits.scheduling_policy if "scheduling_policy" in changed else event.policy
        return PolicyChanged(policy, kept)

    def entries(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            yield entry._replace(event=self.event(entry.event))

    def new_header(self, question: str) -> Header:
        """Of a recording of this scenario: the digests in it are under the recorded key."""
        header = self.header
        changed = {name: pair[1] for name, pair in self.changes().items()}
        config = {name: changed.get(name, value) for name, value in header.config.items()}
        environment = {name: value for name, value in header.environment.items() if name != POLICY_DIGEST}
        if self.policy_digest:
            environment[POLICY_DIGEST] = self.policy_digest
        return Header(
            salt=header.salt,
            boot_id=header.boot_id,
            reprise_version=header.reprise_version,
            limits=self.limits.to_dict(),
            config={**config, "what_if": question},
            environment=environment,
            quirks=header.quirks,
        )


_FIELDS = fields(Limits)


def scenario_of(header: Header, asked: dict[str, Any], *, with_contents: bool = False) -> Scenario:
    """What to put in place of the recorded limits: `asked`, fields of Limits.

    with_contents   prompts can be digested anew, in blocks of another size
    Raises CannotCompare, PolicyNotLoaded.
    """
    recorded = Limits.from_dict(header.limits)
    limits = replace(recorded, **asked)
    if limits.block_size != recorded.block_size and not with_contents:
        raise CannotCompare(
            f"prompts were digested in blocks of {recorded.block_size} tokens when they were recorded, so what the "
            f"prefix cache would hold in blocks of {limits.block_size} cannot be known",
            "keep --block-size, or run the model on the recorded contents: --execute",
        )
    name = limits.scheduling_policy
    if not is_own_policy(name):
        return Scenario(header, recorded, limits, make_policy, "")
    own = load_own_policy(name)
    return Scenario(header, recorded, limits, policy_factory(own), own.sha256)
