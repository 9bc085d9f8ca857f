"""What a backend on a device of its own is beside `Backend`: told of draws in advance, and asked about its memory."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from kernels.sampling import DrawRow


class LargestStep(NamedTuple):
    """What a step will hold at most: its rows, those whose logits are wanted, and a sequence's blocks."""

    num_rows: int
    num_logits: int
    num_blocks: int


class KVBudget(NamedTuple):
    """How much of a device's memory keys and values may take; all in bytes.

    total      of the device, whoever uses it
    in_use     now: weights, a step's tensors at their largest, the driver, other processes
    reserved   for what comes while serving: graphs, arrays that travel, scratch of draws
    limit      share of `total` that may be used, over all
    """

    total: int
    in_use: int
    reserved: int
    limit: int

    @property
    def kv_bytes(self) -> int:
        """At least 0."""
        return max(0, self.limit - self.in_use - self.reserved)


@runtime_checkable
class DeviceBackend(Protocol):
    """
    notices     what an operator should know; whoever has told it takes it away
    read_back   why rows of logits came to the host whole for their draw → how many
    """

    notices: list[str]
    read_back: Counter[str]

    def keep_choices_in(self, folder: Path) -> None:
        """Before `load`: where measured choices are kept, so that a machine is measured once."""
        ...

    def kv_budget(self, utilization: float, largest: LargestStep) -> KVBudget | None:
        """After `load`, before KV memory is made; makes room for the largest step. None: there is no such memory."""
        ...

    def expect_draws(self, rows: Sequence[DrawRow]) -> None:
        """Before a step: the draws that will be asked of it, in the very list, which come with its results then."""
        ...
