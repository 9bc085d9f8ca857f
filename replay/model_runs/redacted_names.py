"""Names that say nothing, for a redacted copy. Tenants keep their order by name, for `fair` decides by it among equals.

It must not know contents.
"""

from collections.abc import Iterable
from typing import Any

from engine.core.events import PolicyChanged, RequestArrived
from engine.core.limits import normalized_weights
from replay.lives import Life


class RedactedNames:
    """`tenant` and `request` of each name, over all lives of a run."""

    def __init__(self, tenants: Iterable[str] = ()) -> None:
        known = sorted(set(tenants) - {""})  # which means nobody's, and names nobody
        digits = len(str(max(0, len(known) - 1)))
        self._tenants = {name: f"tenant-{number:0{digits}d}" for number, name in enumerate(known)}
        self._requests: dict[str, str] = {}

    @classmethod
    def of(cls, lives: Iterable[Life]) -> "RedactedNames":
        """One pass over the entries, for all tenants must be known before the first is named."""
        return cls(name for life in lives for name in _tenants_of(life))

    def tenant(self, name: str) -> str:
        """Raises KeyError when none of the lives names it."""
        return self._tenants[name] if name else ""

    def request(self, name: str) -> str:
        return self._requests.setdefault(name, f"request-{len(self._requests)}")

    def weights(self, pairs: Any) -> tuple[tuple[str, int], ...]:
        return tuple([(self.tenant(name), weight) for name, weight in normalized_weights(pairs)])


def _tenants_of(life: Life) -> Iterable[str]:
    for values in (life.header.config, life.header.limits):
        yield from (name for name, _weight in normalized_weights(values.get("tenant_weights") or ()))
    for entry in life.entries():
        event = entry.event
        if isinstance(event, RequestArrived):
            yield event.tenant
        elif isinstance(event, PolicyChanged):
            weights = dict(event.parameters).get("tenant_weights", ())
            yield from (name for name, _weight in normalized_weights(weights))
            yield from (row[0] for row in event.counted)
