"""An operator's own scheduling policies, as the tests name them: `tests.engine.own_policies:Lifo`."""

from engine.core.policies.interface import Policy
from engine.core.request import Request


class Lifo(Policy):
    """The youngest first."""

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        return (-request.number,)


class NoPolicy:
    """Derived from nothing of ours."""
