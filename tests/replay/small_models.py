"""Recordings of a small random decoder on a real backend, and runners with faults planted beneath the scheduler."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from engine.clock import ManualClock
from engine.core.decisions import StepPlanned
from engine.core.vocabulary import Entry
from engine.execution.interface import StepResult
from engine.execution.kv_store import KVStore
from engine.execution.runner import ModelRunner
from engine.text.model_source import DEFAULT_MODEL, resolve_model
from engine.text.text_model import TextModel, load_text_model
from kernels.backend import Backend
from kernels.reference import ReferenceBackend
from recorder.header import Header
from replay.model_runs.open_model import OpenedRunner, OpenRunner, Overrides
from tests.kernels.cpu_library import loaded
from tests.kernels.tiny_models import random_parameters
from tests.replay.recorded_runs import LIMITS, SALT, SCRIPTED_CLASS, entries_of, mixed_load, record_run

MakeRunner = Callable[[Backend, KVStore, TextModel, bytes, ManualClock], ModelRunner]


@cache
def small_backend(name: str) -> Backend:
    """`reference`, or the native library with weights of this format."""
    if name == "reference":
        backend = ReferenceBackend(2)
        backend.load(random_parameters("F32"), LIMITS.max_model_len)
        return backend
    return loaded(random_parameters(name), max_positions=LIMITS.max_model_len)


@cache
def text_model() -> TextModel:
    return load_text_model(resolve_model(DEFAULT_MODEL), encodes=False)


def small_runner(name: str, make: MakeRunner = ModelRunner) -> ModelRunner:
    """With an empty KV memory of its own."""
    backend = small_backend(name)
    kv_store = KVStore.allocate(backend, LIMITS.num_kv_blocks, LIMITS.block_size)
    return make(backend, kv_store, text_model(), SALT, ManualClock())


def open_small(name: str, make: MakeRunner = ModelRunner) -> OpenRunner:
    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(small_runner(name, make), SCRIPTED_CLASS, {"backend": name})

    return open_runner


def record_small(
    directory: Path, name: str, num_requests: int, make: MakeRunner = ModelRunner, keyframe_every: int = 0
) -> Path:
    runner = small_runner(name, make)
    return record_run(directory, mixed_load(num_requests), runner=runner, keyframe_every=keyframe_every)


def plans_of(path: Path) -> list[StepPlanned]:
    entries: list[Entry] = entries_of(path)
    return [decision for entry in entries for decision in entry.decisions if isinstance(decision, StepPlanned)]


class FaultyModelRunner(ModelRunner):
    """Calls the fault with itself and the plan before each step, and what that gives after it."""

    @staticmethod
    def fault(runner: "FaultyModelRunner", plan: StepPlanned) -> Callable[[], None] | None:
        return None

    def execute(self, plan: StepPlanned) -> StepResult:
        after = self.fault(self, plan)
        result = super().execute(plan)
        if after is not None:
            after()
        return result

    def block_table(self, request: int) -> list[int]:
        return self._requests[request].block_table


def with_fault(fault: Callable[[FaultyModelRunner, StepPlanned], Callable[[], None] | None]) -> MakeRunner:
    return type("PlantedRunner", (FaultyModelRunner,), {"fault": staticmethod(fault)})


def reads_a_neighbours_block(step: int, request: int, index: int, block: int) -> MakeRunner:
    """From `step` on the request's table says `block` at place `index`: what an off-by-one in a table does."""

    def fault(runner: FaultyModelRunner, plan: StepPlanned) -> None:
        if plan.step == step:
            runner.block_table(request)[index] = block

    return with_fault(fault)


def loses_the_writes_of(step: int, request: int, block: int) -> MakeRunner:
    """What `step` writes to `block` never gets there: the block holds what its former holder left."""

    def fault(runner: FaultyModelRunner, plan: StepPlanned) -> Callable[[], None] | None:
        if plan.step != step:
            return None
        memory = runner.kv_store.keys, runner.kv_store.values
        slots = np.arange(block * LIMITS.block_size, (block + 1) * LIMITS.block_size)
        stale = runner.backend.read_slots(memory, slots)
        return lambda: runner.backend.write_slots(memory, slots, stale)

    return with_fault(fault)
