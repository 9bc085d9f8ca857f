"""A one-bit change planted in one of two builds, at a random step, layer, operation and row, is named exactly.

The bit is the lowest of a random float's mantissa, or of a key's or value's: what a miscompiled kernel or a worn memory
chip would change. Much of it is rounded away before it reaches a token; it is named all the same.
"""

import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.core.decisions import StepPlanned
from kernels.backend import Backend, KVMemory, StepBatch, StepOutput
from kernels.trace import LAYER_OPERATIONS, OPERATIONS
from replay.bisect.builds import where_they_part
from replay.model_runs.open_model import Overrides
from replay.model_runs.step_trace import StepKey, StepTracer
from replay.proof import OperationPlace
from tests.kernels.tiny_models import SMALL
from tests.replay.small_models import FaultyModelRunner, MakeRunner, open_small, plans_of, record_small, with_fault

NUM_REQUESTS = 8
TRIALS = {"BF16": 5, "Q4_1": 5}
MANY_TRIALS = {"BF16": 20, "Q4_1": 20, "reference": 10}


class Plant(NamedTuple):
    place: OperationPlace
    row: int  # in the step


def random_plant(path: Path, seed: int) -> Plant:
    """Rows without logits have no final norm and no head: those are planted in rows that emit, a sequence's last."""
    draw = random.Random(seed)
    plan = draw.choice(plans_of(path))
    operation = draw.choice(OPERATIONS)
    layer = draw.randrange(SMALL.num_layers) if operation in LAYER_OPERATIONS else -1
    rows = [(request, position) for request, start, count in plan.rows for position in range(start, start + count)]
    row = draw.randrange(len(rows))
    if operation in ("final_norm", "head"):
        row = _an_emitting_row(plan, draw, rows)
    return Plant(OperationPlace(plan.step, *rows[row], layer, operation), row)


def _an_emitting_row(plan: StepPlanned, draw: random.Random, rows: list[tuple[int, int]]) -> int:
    """A decoding request's: it always emits. Where there is none, the last row of the step's last sequence."""
    decoding = [rows.index((request, start)) for request, start, count in plan.rows if count == 1]
    return draw.choice(decoding) if decoding else len(rows) - 1


def flips(plant: Plant, seed: int) -> MakeRunner:
    """A build that flips one bit of the operation's result in that step, and computes everything else as it should."""

    def fault(runner: FaultyModelRunner, plan: StepPlanned) -> Any:
        if plan.step != plant.place.step:
            return None
        holder: Any = runner.backend if hasattr(runner.backend, "prepare") else runner  # beneath whoever looks on
        sound = holder.backend
        holder.backend = _Flipping(sound, plant, seed)
        return lambda: setattr(holder, "backend", sound)

    return with_fault(fault)


class _Flipping:
    def __init__(self, backend: Backend, plant: Plant, seed: int) -> None:
        self._backend, self._plant, self._seed = backend, plant, seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        return self.forward_traced(batch, keys, values, lambda layer, operation, rows, result: None)

    def forward_traced(self, batch: StepBatch, keys: KVMemory, values: KVMemory, tap: Any) -> StepOutput:
        place = self._plant.place

        def flip(layer: int, operation: str, rows: NDArray[np.int64], result: NDArray[Any]) -> None:
            if (layer, operation) == (place.layer, place.operation):
                (at,) = np.nonzero(rows == self._plant.row)
                for index in at.tolist():
                    values = result[index].view(np.uint16 if result.itemsize == 2 else np.uint32)
                    values[random.Random(self._seed).randrange(len(values))] ^= 1
            tap(layer, operation, rows, result)

        return self._backend.forward_traced(batch, keys, values, flip)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One per backend, made when it is asked for."""
    folder = tmp_path_factory.mktemp("planted")
    return {name: record_small(folder / name, name, NUM_REQUESTS) for name in TRIALS}


def _tracer(path: Path, name: str, make: MakeRunner | None = None) -> StepTracer:
    return StepTracer(path, Overrides(), open_small(name, make) if make else open_small(name))


def _is_named(path: Path, name: str, seed: int) -> bool:
    plant = random_plant(path, seed)
    parting, _num_steps = where_they_part(_tracer(path, name), _tracer(path, name, flips(plant, seed)))
    assert parting is not None, plant
    assert parting.place == plant.place
    assert parting.key == StepKey(0, plant.place.step)
    return True


@pytest.mark.parametrize(("name", "trial"), [(name, trial) for name, count in TRIALS.items() for trial in range(count)])
def test_a_planted_bit_is_named_exactly(recordings: dict[str, Path], name: str, trial: int) -> None:
    assert _is_named(recordings[name], name, trial)


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY_TRIALS)
def test_fifty_planted_bits_are_named_exactly(name: str, tmp_path: Path) -> None:
    path = record_small(tmp_path / "run", name, NUM_REQUESTS)
    named = [_is_named(path, name, 1000 + trial) for trial in range(MANY_TRIALS[name])]
    assert len(named) == MANY_TRIALS[name]


def test_two_equal_builds_do_not_part(recordings: dict[str, Path]) -> None:
    parting, num_steps = where_they_part(_tracer(recordings["BF16"], "BF16"), _tracer(recordings["BF16"], "BF16"))
    assert parting is None
    assert num_steps == len(plans_of(recordings["BF16"]))
