"""Names of the ways to mix phases → these ways. The name stands in the limits, and so in every recording's header."""

from engine.core.errors import UnknownPhases
from engine.core.limits import Limits
from engine.core.phases.chunked import Chunked
from engine.core.phases.interface import Phases

PHASES_NAMES = [Chunked.name]


def make_phases(limits: Limits) -> Phases:
    """The way that `limits` name, with its parameters. Raises UnknownPhases."""
    if limits.scheduling_phases == Chunked.name:
        return Chunked()
    raise UnknownPhases(limits.scheduling_phases, PHASES_NAMES)
