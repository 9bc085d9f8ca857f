"""What copying a block between the pool and the host takes: a rate that follows the measured copies.

It is part of the core's state, as the step-time model is, and in whole numbers too. Until something was measured a copy
counts as free, so that the first victim worth recomputing is swapped and tells the rate. A rate that speaks against
swapping would never be measured again, though the stall behind it may be over: each time that it does, it is believed
a little less. It must not know who is swapped.
"""

_FORGETTING_BITS = 3  # a sample's weight falls by 1/8 with each later one
_DOUBT_BITS = 5  # a refusal takes 1/32 off the rate: one ten times too high is tried again after 73 of them
_SCALE_BITS = 16  # sums are kept times 65,536: what the shifts of forgetting cut off is nothing
MAX_COPY_NS = 600_000_000_000  # no longer time is believed


class SwapCost:
    """`planned` counts the copies that go before a step, `observe` takes the time they took."""

    def __init__(self) -> None:
        self._num_planned = 0
        self._blocks = 0
        self._time = 0

    def planned(self, num_blocks: int) -> None:
        self._num_planned += num_blocks

    def take_planned(self) -> int:
        """Copies planned since the last call of `observe`, not counted any more: they belong to a later step."""
        num_blocks, self._num_planned = self._num_planned, 0
        return num_blocks

    def observe(self, swap_ns: int) -> None:
        """The copies planned since the last call took so long; 0 where nobody measured, or nothing was copied."""
        num_blocks = self.take_planned()
        if num_blocks == 0 or swap_ns <= 0:
            return
        self._blocks += (num_blocks << _SCALE_BITS) - (self._blocks >> _FORGETTING_BITS)
        self._time += (min(swap_ns, MAX_COPY_NS) << _SCALE_BITS) - (self._time >> _FORGETTING_BITS)

    def predict_ns(self, num_blocks: int) -> int:
        """0 where nothing is known yet."""
        return self._time * num_blocks // self._blocks if self._blocks else 0

    def doubt(self) -> None:
        """The rate has spoken against swapping."""
        self._time -= self._time >> _DOUBT_BITS
