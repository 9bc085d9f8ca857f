"""What a step takes that was never executed: the fitted step cost, and how far the recorded steps were from it.

A machine has slower hours and stalls, and no linear form fits every shape. So a step is expected to take what the cost
fitted to the recording says of its shape, put right by how the steps of about its size went on the whole, and then as
much more or less as the recorded step nearest to it in time: what befell the machine befalls it in the counterfactual
too. A step that was recorded at that very time in that very shape takes what it took.

With an exchange no step knows its own recorded time, it takes the deviation of one so many steps away, which takes its
own: the same noise, dealt out otherwise. That tells how well steps are predicted, and what a run owes to its noise.
"""

from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from engine.core.step_time import StepShape
from replay.refusal import CannotCompare
from replay.simulate.fitted_cost import MIN_STEPS, fit
from replay.simulate.step_cost import StepCost
from replay.what_if.recorded_load import StepSample

MIN_OF_A_SIZE = 8  # steps of about a size before the cost is put right for it
_MAX_FACTOR = 2.0  # a machine is not slower for longer work than so; what a step took beyond was a stall of its own


class StepTime(NamedTuple):
    """Nanoseconds from the plan to the result, and the parts of it that the engine tells the core."""

    total_ns: int
    execute_ns: int
    sample_ns: int
    swap_ns: int


@dataclass(frozen=True, slots=True)
class _Deviation:
    sample: StepSample
    factor: float
    stall_ns: float


class StepTimes:
    """Raises CannotCompare when too few steps were executed to fit a cost to."""

    def __init__(self, samples: Sequence[StepSample]) -> None:
        if len(samples) < MIN_STEPS:
            raise CannotCompare(
                f"the recording holds {len(samples)} executed steps, and a step cost is fitted to {MIN_STEPS} at least",
                "record a longer run, or run the model: --execute",
            )
        self._exchange = 0
        self.cost: StepCost = fit([(sample.shape, sample.total_ns - sample.swap_ns) for sample in samples])
        self._corrections = self._fit_corrections(samples)
        num_copied = sum(sample.num_copied_blocks for sample in samples)
        self._copy_ns = sum(sample.swap_ns for sample in samples) / num_copied if num_copied else 0.0
        self._by_kind: dict[bool, list[_Deviation]] = {False: [], True: []}
        for sample in samples:
            self._by_kind[sample.shape.prefill_tokens > 0].append(self._deviation(sample))
        for kind, other in ((False, True), (True, False)):
            self._by_kind[kind] = self._by_kind[kind] or self._by_kind[other]
        self._times = {kind: [it.sample.began_ns for it in found] for kind, found in self._by_kind.items()}

    def exchanged(self, distance: int) -> "StepTimes":
        """The same, with deviations exchanged over so many steps."""
        other = copy(self)
        other._exchange = distance
        return other

    def of(self, shape: StepShape, began_ns: int, num_copied_blocks: int) -> StepTime:
        near = self._nearest(shape.prefill_tokens > 0, began_ns)
        sample = near.sample
        if not self._exchange and sample.shape == shape and num_copied_blocks == sample.num_copied_blocks:
            return StepTime(sample.total_ns, sample.execute_ns, sample.sample_ns, sample.swap_ns)
        busy_ns = max(1.0, self._expected_ns(shape) * near.factor + near.stall_ns)
        share = busy_ns / max(1, sample.total_ns - sample.swap_ns)
        swap_ns = int(self._copy_ns * num_copied_blocks)
        return StepTime(int(busy_ns) + swap_ns, int(sample.execute_ns * share), int(sample.sample_ns * share), swap_ns)

    def _nearest(self, has_prefill: bool, began_ns: int) -> _Deviation:
        times, found = self._times[has_prefill], self._by_kind[has_prefill]
        index = bisect_left(times, began_ns)
        if index == len(times) or (index and began_ns - times[index - 1] < times[index] - began_ns):
            index -= 1
        other = index ^ self._exchange  # pairs exchange: each deviation is used as often as it occurred
        return found[other if other < len(found) else max(0, index - self._exchange)]

    def _deviation(self, sample: StepSample) -> _Deviation:
        took_ns = max(1, sample.total_ns - sample.swap_ns)
        expected_ns = self._expected_ns(sample.shape)
        factor = min(max(took_ns / expected_ns, 1 / _MAX_FACTOR), _MAX_FACTOR)
        return _Deviation(sample, factor, took_ns - expected_ns * factor)

    def _expected_ns(self, shape: StepShape) -> float:
        return max(1.0, self.cost.of(shape) * self._corrections.get(_size(shape), 1.0))

    def _fit_corrections(self, samples: Sequence[StepSample]) -> dict[tuple[bool, int], float]:
        ratios: dict[tuple[bool, int], list[float]] = {}
        for sample in samples:
            ratio = (sample.total_ns - sample.swap_ns) / max(1, self.cost.of(sample.shape))
            ratios.setdefault(_size(sample.shape), []).append(ratio)
        return {size: median(found) for size, found in ratios.items() if len(found) >= MIN_OF_A_SIZE}


def _size(shape: StepShape) -> tuple[bool, int]:
    """Decodes by their number, prefill by the power of two of its tokens."""
    if shape.prefill_tokens:
        return True, shape.prefill_tokens.bit_length()
    return False, shape.num_decodes
