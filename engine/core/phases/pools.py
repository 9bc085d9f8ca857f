"""Two pools by turns: a step is all prefill or all decode, and prefill has a stated share of the device's time.

The pool that has had less of its share goes next, by the times that the events report; an executor that reports none
counts steps. Only turns that both pools wanted are counted, so an idle pool saves nothing up. With half of the time for
each and prefill steps ten times as long as decode steps, one prefill step is followed by ten decode steps.
"""

from collections.abc import Sequence

from engine.core.phases.interface import Phases, StepShare
from engine.core.request import Request


class Pools(Phases):
    name = "pools"

    def __init__(self, prefill_share_permille: int) -> None:
        self._prefill_share = prefill_share_permille
        self._prefill_lead = 0  # prefill's time × decode's share less decode's time × prefill's share
        self._turn: bool | None = None  # prefill's turn? None while one phase has the device to itself

    def share(self, decodes: Sequence[Request], prefills: Sequence[Request], token_budget: int) -> StepShare:
        self._turn = self._prefill_lead <= 0
        return StepShare(token_budget, decodes_wait=True) if self._turn else StepShare(0)

    def alone(self, token_budget: int) -> StepShare:
        self._turn = None
        return StepShare(token_budget)

    def completed(self, has_prefill: bool, step_ns: int) -> None:
        """A prefill turn in which no prompt could be computed, for want of blocks, counts for nobody."""
        if self._turn is None or has_prefill is not self._turn:
            return
        if has_prefill:
            self._prefill_lead += max(1, step_ns) * (1000 - self._prefill_share)
        else:
            self._prefill_lead -= max(1, step_ns) * self._prefill_share
