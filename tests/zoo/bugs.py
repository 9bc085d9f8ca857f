"""All bugs of the zoo."""

from tests.zoo.bug import Bug
from tests.zoo.in_decisions import IN_DECISIONS
from tests.zoo.in_memory import IN_MEMORY

__all__ = ["BUGS", "Bug"]

BUGS: tuple[Bug, ...] = (*IN_MEMORY, *IN_DECISIONS)
