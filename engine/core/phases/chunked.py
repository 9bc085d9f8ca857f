"""Chunked prefill: every decode has its token, and prefills fill the rest of a fixed budget.

So a running stream gets one token in every step, whatever is prefilled beside it; how long such a step takes depends
on the budget, whatever the machine.

Source: Agrawal et al., Sarathi-Serve, OSDI 2024.
"""

from collections.abc import Sequence

from engine.core.phases.interface import Phases, StepShare
from engine.core.request import Request


class Chunked(Phases):
    name = "chunked"

    def share(self, decodes: Sequence[Request], prefills: Sequence[Request], token_budget: int) -> StepShare:
        return StepShare(token_budget)
