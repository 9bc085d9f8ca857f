"""Who wrote what to the KV memory: a digest of every row written while a run is carried out again.

So bytes found in a request's blocks can be traced to whoever computed them. It must not know why anybody asks.
"""

import numpy as np

from replay.model_runs.tracing import Digests, Integers, StepSeen
from replay.proof import Writer


class KVLog:
    """Rows in the order in which they were written.

    names   request → the name its client knows it by
    """

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._steps: list[StepSeen] = []
        self._digests: list[Digests] = []  # [rows of the step, layers]
        self._writer_of_slot: dict[int, Writer] = {}

    def add(self, seen: StepSeen, digests: Digests) -> None:
        """A step's rows, and what lay in their slots after it."""
        self._steps.append(seen._replace(digests=np.zeros((0, 0), np.uint64), tables={}))
        self._digests.append(digests)
        for request, position, slot in zip(
            seen.requests.tolist(), seen.positions.tolist(), seen.slots.tolist(), strict=True
        ):
            self._writer_of_slot[slot] = Writer(request, self._names.get(request, ""), position, seen.step)

    def last_writer(self, slot: int) -> Writer | None:
        return self._writer_of_slot.get(slot)

    def owners(self, wanted: Digests, layers: Integers, *, but_not: tuple[int, int]) -> list[Writer]:
        """Who wrote rows equal to `wanted` [layers] in all of `layers`, each once, but not the row `but_not`."""
        found: dict[tuple[int, int], Writer] = {}
        for seen, digests in zip(self._steps, self._digests, strict=True):
            for row in np.flatnonzero((digests[:, layers] == wanted[layers]).all(axis=1)).tolist():
                owner = int(seen.requests[row]), int(seen.positions[row])
                if owner != but_not and owner not in found:
                    found[owner] = Writer(owner[0], self._names.get(owner[0], ""), owner[1], seen.step)
        return list(found.values())
