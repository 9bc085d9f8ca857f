"""A step cost fitted to the steps of a recording.

The engine's own model (`engine/core/step_time.py`) follows the latest steps; here all steps of a run are weighed alike,
for the whole of it is to be performed again.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from engine.core.decisions import RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import StepCompleted, StepFailed
from engine.core.limits import Limits
from engine.core.step_time import StepShape, shape_of
from engine.core.vocabulary import Entry
from recorder.in_turn import InTurn
from recorder.reader import Recording
from replay.simulate.arrivals import UnusableTrace
from replay.simulate.step_cost import StepCost

MIN_STEPS = 20  # to fit a cost to
_NUM_SWEEPS = 2_000


def cost_of_recording(path: Path) -> StepCost:
    """Raises UnusableTrace when too few steps are in it, and what opening a recording raises."""
    recording = Recording.open(path)
    samples = _Samples()
    for entry in recording.entries():
        samples.read(entry)
    if len(samples.steps) < MIN_STEPS:
        raise UnusableTrace(
            f"{path} holds {len(samples.steps)} executed steps: a cost is fitted to {MIN_STEPS} at least"
        )
    cost = fit(samples.steps)
    num_copied = samples.num_copied * Limits.from_dict(recording.header.limits).block_size
    return replace(cost, copy_ns=samples.swap_ns / num_copied) if num_copied else cost


def fit(samples: Iterable[tuple[StepShape, int]]) -> StepCost:
    """Non-negative least squares of relative errors, then scaled so that all steps together take what they took.

    Relative, so that a long prefill is no more weighty than a short decode; scaled, for stalls weigh little
    in them, and their time has passed all the same. Coordinate descent on the normal
    equations (Franc et al., 2005), each feature scaled to its size.
    """
    rows = [((1, *shape), step_ns) for shape, step_ns in samples if step_ns > 0]
    scales = [max(1.0, max(features[i] for features, _ in rows)) for i in range(5)]
    scaled = [
        [value / scale / step_ns for value, scale in zip(features, scales, strict=True)] for features, step_ns in rows
    ]
    products = [[sum(row[i] * row[j] for row in scaled) for j in range(5)] for i in range(5)]
    targets = [sum(row[i] for row in scaled) for i in range(5)]
    weights = [0.0] * 5
    for _ in range(_NUM_SWEEPS):
        before = list(weights)
        for i in range(5):
            if products[i][i] > 0:
                others = sum(products[i][j] * weights[j] for j in range(5)) - products[i][i] * weights[i]
                weights[i] = max(0.0, (targets[i] - others) / products[i][i])
        if weights == before:  # further sweeps would change nothing
            break
    cost = [weight / scale for weight, scale in zip(weights, scales, strict=True)]
    expected = sum(weight * value for features, _ in rows for weight, value in zip(cost, features, strict=True))
    return StepCost(*[weight * sum(step_ns for _, step_ns in rows) / expected for weight in cost])


class _Samples:
    """
    steps        each executed step's shape and time: from its decision to its result, whatever the engine did beside it
                 but copying
    num_copied   KV blocks, to the host pool and back, whose copies were timed; swap_ns: what they took
    """

    def __init__(self) -> None:
        self.steps: list[tuple[StepShape, int]] = []
        self.num_copied = self.swap_ns = 0
        self._in_turn = InTurn()
        self._shape: StepShape | None = None
        self._began_ns = 0
        self._num_planned = 0  # copies since the step before

    def read(self, recorded: Entry) -> None:
        entry = self._in_turn(recorded)
        event = entry.event
        if isinstance(event, StepCompleted) and self._shape is not None:
            self.steps.append((self._shape, entry.now_ns - self._began_ns - event.swap_ns))
            self.num_copied += self._num_planned if event.swap_ns else 0
            self.swap_ns += event.swap_ns
        if isinstance(event, StepCompleted | StepFailed):
            self._num_planned = 0
        for decision in entry.decisions:
            if isinstance(decision, StepPlanned):
                self._shape, self._began_ns = shape_of(decision.rows), entry.now_ns
            elif isinstance(decision, RequestAdmitted | RequestPreempted):
                self._num_planned += len(decision.host_blocks)
