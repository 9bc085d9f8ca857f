"""The bounded pool of host blocks that preempted requests are swapped to: numbers, no tensors.

A host block is free, or it holds the contents of one block of one preempted request; nothing is shared or cached here.
It must not know requests.
"""

from collections import deque
from collections.abc import Iterable, Sequence


class HostPool:
    """`num_blocks` places, each for one KV block; 0 of them: nobody is swapped."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free: deque[int] = deque(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """The caller has made sure that `count` ≤ `num_free`."""
        return [self._free.popleft() for _ in range(count)]

    def release(self, blocks: Sequence[int]) -> None:
        self._free.extend(blocks)
        assert len(self._free) <= self.num_blocks, "a host block was released twice"

    def check_invariants(self, held: Iterable[Sequence[int]]) -> None:
        """Every block is free or in one of `held`, the lists of all who hold any; none is in two places."""
        blocks = sorted([*self._free, *(block for each in held for block in each)])
        assert blocks == list(range(self.num_blocks)), "a host block is lost or in two places"
