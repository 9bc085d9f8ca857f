"""The one question that every way of mixing phases answers: what may prefills compute in this step, and who waits?"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

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
    """Asked only when decodes and prefills compete; a phase that is alone has the whole budget."""

    name: str

    def share(self, decodes: Sequence[Request], prefills: Sequence[Request], token_budget: int) -> StepShare:
        """
        decodes    running requests that want their one token
        prefills   running requests that want more, in order of their ranks; may be empty while others wait to begin
        """
        ...
