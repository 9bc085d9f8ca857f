"""The one question that every way of mixing phases answers: what may prefills compute in this step, and who waits?"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from engine.core.limits import Limits
from engine.core.request import Request


class StepShare(NamedTuple):
    """
    prefill_tokens   what prefills, under way and newly admitted, may compute in all; the planner keeps it within the
                     step's budget less one token for each decode
    decodes_wait     no decode has a row in this step, unless no prefill can have one
    """

    prefill_tokens: int
    decodes_wait: bool = False


class Phases(Protocol):
    """Pure: a way may keep what it was told, nothing else."""

    name: ClassVar[str]

    def share(self, decodes: Sequence[Request], prefills: Sequence[Request], token_budget: int) -> StepShare:
        """Asked only when decodes and prefills compete.

        decodes    running requests that want their one token; never empty
        prefills   running requests that want more, in order of their ranks; may be empty while others wait to begin
        """
        ...

    def alone(self, token_budget: int) -> StepShare:
        """One phase has the device to itself."""
        return StepShare(token_budget)

    def completed(self, has_prefill: bool, step_ns: int) -> None:
        """The step that was shared last took so long."""
        return

    def change_limits(self, limits: Limits) -> None:
        """Other parameters hold from the next step on."""
        return
