"""Prefill first, the naive way: no stream gets a token while any prompt can be computed.

The shortest time to a first token and the longest gaps between the others: here to compare with. Decodes starve as
long as prompts keep coming.
"""

from collections.abc import Sequence

from engine.core.phases.interface import Phases, StepShare
from engine.core.request import Request


class PrefillFirst(Phases):
    name = "prefill-first"

    def share(self, decodes: Sequence[Request], prefills: Sequence[Request], token_budget: int) -> StepShare:
        return StepShare(token_budget, decodes_wait=True)
