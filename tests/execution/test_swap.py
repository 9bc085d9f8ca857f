"""A request's bits are the same swapped, recomputed and undisturbed; recordings of swaps execute and isolate."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine.core.decisions import PreemptMode, RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import StepCompleted
from engine.core.limits import Limits
from engine.core.step_time import shape_of
from engine.execution.interface import Runner, StepResult
from engine.execution.kv_store import KVStore
from engine.execution.runner import ModelRunner
from engine.execution.scripted import ScriptedRunner
from engine.text.model_source import ModelSource
from engine.text.text_model import TextModel, load_text_model
from kernels.backend import Backend
from kernels.reference import ReferenceBackend
from recorder.header import Header
from recorder.reader import Recording
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.open_model import OpenedRunner, Overrides
from tests.kernels.cpu_library import loaded
from tests.kernels.cuda_device import loaded_on_gpu
from tests.kernels.tiny_models import random_parameters
from tests.replay.recorded_runs import (
    LIMITS,
    SALT,
    SCRIPTED_CLASS,
    TickingClock,
    bits_of,
    entries_of,
    mixed_load,
    record_run,
)

MS = 1_000_000
NUM_REQUESTS = 14
PARAMETERS = random_parameters("Q8_0")


class Timed:
    """A runner whose steps take a millisecond, and one more for each token of a prefill: as long on every machine."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.prompt_digests = runner.prompt_digests
        self.add_request = runner.add_request
        self.carry_out = runner.carry_out

    def execute(self, plan: StepPlanned) -> StepResult:
        result = self._runner.execute(plan)
        execute_ns = (1 + shape_of(plan.rows).prefill_tokens) * MS
        return result._replace(completed=result.completed._replace(execute_ns=execute_ns, sample_ns=0))


@dataclass
class Made:
    """Makes a fresh runner each time. `block_size` and, of it, so many blocks that they run out."""

    backend: Backend | None
    text_model: TextModel
    block_size: int

    @property
    def limits(self) -> Limits:
        return replace(LIMITS, block_size=self.block_size, num_kv_blocks=80 // self.block_size, swap_space_blocks=40)

    def runner(self, limits: Limits) -> Runner:
        if self.backend is None:
            return ScriptedRunner(limits.num_kv_blocks, limits.block_size, SALT)
        store = KVStore.allocate(self.backend, limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
        return ModelRunner(self.backend, store, self.text_model, SALT, TickingClock())

    def open(self, header: Header, overrides: Overrides) -> OpenedRunner:
        return OpenedRunner(self.runner(Limits.from_dict(header.limits)), SCRIPTED_CLASS, {"backend": "scripted"})

    def record(self, directory: Path, limits: Limits) -> Path:
        return record_run(directory, mixed_load(NUM_REQUESTS), limits=limits, runner=Timed(self.runner(limits)))


def reference() -> Backend:
    backend = ReferenceBackend(num_threads=2)
    backend.load(PARAMETERS, 128)
    return backend


@pytest.fixture(
    scope="module",
    params=["scripted", "cpu-bfloat16-16", "cpu-float32-4", "reference-4", "cuda-bfloat16-16", "cuda-float8-4"],
)
def made(request: pytest.FixtureRequest, default_source: ModelSource) -> Made:
    name, _, block_size = request.param.rpartition("-")
    text_model = load_text_model(default_source)
    if name.startswith("cuda"):
        on_gpu = loaded_on_gpu(PARAMETERS, dtype=name.removeprefix("cuda-"), max_positions=128)
        return Made(on_gpu, text_model, int(block_size))
    if name.startswith("cpu"):
        return Made(loaded(PARAMETERS, dtype=name.removeprefix("cpu-"), max_positions=128), text_model, int(block_size))
    return Made(reference() if name == "reference" else None, text_model, 4)


@pytest.fixture(scope="module")
def swapped(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.record(tmp_path_factory.mktemp("swapped") / "run", made.limits)


def preemptions(path: Path) -> list[RequestPreempted]:
    return [each for entry in entries_of(path) for each in entry.decisions if isinstance(each, RequestPreempted)]


def assert_equal_as_far_as_both_went(first: Path, second: Path) -> None:
    """A request may be cancelled sooner in one than in the other."""
    left, right = bits_of(first), bits_of(second)
    outputs = [Recording.open(path).contents().outputs for path in (first, second)]
    num_compared = 0
    for request in left.keys() & right.keys():
        num_common = min(len(left[request]), len(right[request]))
        assert left[request][:num_common] == right[request][:num_common]
        assert outputs[0](request)[:num_common] == outputs[1](request)[:num_common]
        num_compared += num_common
    assert num_compared > 80


def test_swapped_recomputed_and_undisturbed_requests_have_the_same_bits(
    made: Made, swapped: Path, tmp_path: Path
) -> None:
    recomputed = made.record(tmp_path / "recomputed", replace(made.limits, swap_space_blocks=0))
    alone = made.record(tmp_path / "alone", replace(made.limits, max_num_seqs=1))
    modes = [{preemption.mode for preemption in preemptions(path)} for path in (swapped, recomputed, alone)]
    assert modes == [{PreemptMode.SWAP}, {PreemptMode.RECOMPUTE}, set()]
    assert_equal_as_far_as_both_went(swapped, recomputed)
    assert_equal_as_far_as_both_went(swapped, alone)


def test_what_is_measured_of_copies_reaches_the_core(made: Made, swapped: Path) -> None:
    if made.backend is None:
        pytest.skip("the scripted runner takes no time")
    assert any(isinstance(entry.event, StepCompleted) and entry.event.swap_ns for entry in entries_of(swapped))
    assert preemptions(swapped)[-1].swap_ns > 0


def test_a_recording_with_swaps_is_decided_executed_and_isolated_again(made: Made, swapped: Path) -> None:
    assert check(swapped).divergences == ()
    executed = execute(swapped, open_runner=made.open)
    assert executed.exit_code == 0, executed.as_text()
    isolated = isolate(swapped, None, open_runner=made.open)
    assert isolated.exit_code == 0, isolated.as_text()
    assert isolated.figures["requests"] >= 8


def test_a_copy_that_goes_astray_is_a_divergence(made: Made, swapped: Path) -> None:
    """The blocks come back in another order: what the promise above would look like broken."""

    def open_astray(header: Header, overrides: Overrides) -> OpenedRunner:
        opened = made.open(header, overrides)
        carry_out = opened.runner.carry_out

        def astray(decision: object) -> None:
            if isinstance(decision, RequestAdmitted):
                decision = decision._replace(host_blocks=decision.host_blocks[::-1])
            carry_out(decision)  # type: ignore[arg-type]  # a decision

        opened.runner.carry_out = astray  # type: ignore[method-assign]
        return opened

    assert execute(swapped, open_runner=open_astray).divergences
