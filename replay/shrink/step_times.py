"""What a step takes when a scenario is performed again: what it took when recorded, where it is that step; else a fit.

As long as a performance goes as it was recorded, every step takes what it took. Where it has left that path, a step of
a shape that was recorded takes what the first such took, and any other what a fit to all recorded steps says.
"""

from collections.abc import Sequence

from engine.core.step_time import StepShape
from replay.shrink.scenario import RecordedStep
from replay.simulate.fitted_cost import fit
from replay.simulate.step_cost import StepCost


class StepTimes:
    """`of(step, shape)`: the recorded step that tells how long, and how it ends."""

    def __init__(self, steps: Sequence[RecordedStep]) -> None:
        self._steps = steps
        self._of_shape: dict[StepShape, RecordedStep] = {}
        self._cost: StepCost | None = None
        for step in steps:
            if not step.error:
                self._of_shape.setdefault(step.shape, step)

    def of(self, number: int, shape: StepShape) -> RecordedStep:
        if number < len(self._steps) and self._steps[number].shape == shape:
            return self._steps[number]
        return self._of_shape.get(shape) or self._fitted(shape)

    def _fitted(self, shape: StepShape) -> RecordedStep:
        if self._cost is None:
            samples = [(step.shape, step.step_ns) for step in self._steps if not step.error and step.step_ns > 0]
            self._cost = fit(samples) if samples else StepCost()
        step_ns = max(1, self._cost.of(shape))
        return RecordedStep(shape, step_ns, step_ns)
