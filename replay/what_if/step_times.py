"""What a step takes that was never executed: the fitted step cost, and how far the recorded steps were from it.

A machine has slower hours and stalls, and no linear form fits every shape. So a step is expected to take what the cost
fitted to the recording says of its shape, put right by how the steps of about its size went on the whole, and then as
much more or less as a recorded step near to it in time, of about its size if there is one: what befell the machine
befalls it in the counterfactual too. A step that was recorded at that very time in that very shape takes what it took.

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


_NEAR_NS = 2_000_000_000
_Group = tuple[bool, int] | bool | None  # steps of about a size, those with or without prefill, all


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
        self._distance = 0
        self.cost: StepCost = fit([(sample.shape, sample.total_ns - sample.swap_ns) for sample in samples])
        self._corrections = self._fit_corrections(samples)
        num_copied = sum(sample.num_copied_blocks for sample in samples)
        self._copy_ns = sum(sample.swap_ns for sample in samples) / num_copied if num_copied else 0.0
        self._groups: dict[_Group, list[_Deviation]] = {}
        for sample in samples:
            deviation, size = self._deviation(sample), _size(sample.shape)
            for group in (size, size[0], None):
                self._groups.setdefault(group, []).append(deviation)
        self._times = {group: [it.sample.began_ns for it in found] for group, found in self._groups.items()}

    def exchanged(self, distance: int) -> "StepTimes":
        """The same, with deviations exchanged over so many steps."""
        other = copy(self)
        other._distance = distance
        return other

    def of(self, shape: StepShape, began_ns: int, num_copied_blocks: int) -> StepTime:
        near = self._nearest(shape, began_ns)
        sample = near.sample
        if not self._distance and sample.shape == shape and num_copied_blocks == sample.num_copied_blocks:
            return StepTime(sample.total_ns, sample.execute_ns, sample.sample_ns, sample.swap_ns)
        busy_ns = max(1.0, self._expected_ns(shape) * near.factor + near.stall_ns)
        share = busy_ns / max(1, sample.total_ns - sample.swap_ns)
        swap_ns = int(self._copy_ns * num_copied_blocks)
        return StepTime(int(busy_ns) + swap_ns, int(sample.execute_ns * share), int(sample.sample_ns * share), swap_ns)

    def _nearest(self, shape: StepShape, began_ns: int) -> _Deviation:
        """Of about the step's size, where there are some of it, one near in time; else of its kind."""
        size = _size(shape)
        if len(self._times.get(size, ())) >= MIN_OF_A_SIZE:
            index = _nearest_place(self._times[size], began_ns)
            if abs(self._times[size][index] - began_ns) <= _NEAR_NS:
                return self._exchanged_at(size, index)
        group = size[0] if size[0] in self._groups else None
        return self._exchanged_at(group, _nearest_place(self._times[group], began_ns))

    def _exchanged_at(self, group: _Group, index: int) -> _Deviation:
        """Pairs exchange: each deviation is used as often as it occurred."""
        found, other = self._groups[group], index ^ self._distance
        return found[other if other < len(found) else max(0, index - self._distance)]

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


def _nearest_place(times: Sequence[int], at_ns: int) -> int:
    index = bisect_left(times, at_ns)
    return index - 1 if index == len(times) or (index and at_ns - times[index - 1] < times[index] - at_ns) else index


def _size(shape: StepShape) -> tuple[bool, int]:
    """Decodes by their number, prefill by the power of two of its tokens."""
    if shape.prefill_tokens:
        return True, shape.prefill_tokens.bit_length()
    return False, shape.num_decodes
