"""Names of the ways to mix phases → these ways. The name stands in the limits, and so in every recording's header."""

from engine.core.errors import UnknownPhases
from engine.core.limits import Limits
from engine.core.phases.adaptive import Adaptive
from engine.core.phases.chunked import Chunked
from engine.core.phases.interface import Phases
from engine.core.phases.pools import Pools
from engine.core.phases.prefill_first import PrefillFirst
from engine.core.step_time import StepTimeModel

PHASES_NAMES = [Adaptive.name, Chunked.name, Pools.name, PrefillFirst.name]


def make_phases(limits: Limits, step_times: StepTimeModel) -> Phases:
    """The way that `limits` name, with its parameters. Raises UnknownPhases."""
    match limits.scheduling_phases:
        case Adaptive.name:
            return Adaptive(limits, step_times)
        case Chunked.name:
            return Chunked()
        case Pools.name:
            return Pools(limits.prefill_share_permille)
        case PrefillFirst.name:
            return PrefillFirst()
        case name:
            raise UnknownPhases(name, PHASES_NAMES)
