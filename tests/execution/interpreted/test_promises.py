"""The engine on the cuda backend keeps its promises: decided, executed and isolated again, with swaps and prefix hits.

The real loop, core, runner and recorder; only the device is missing, and the model is tiny.
"""

from pathlib import Path
from typing import Any

import pytest

from engine.core.contents import RequestContents
from engine.core.decisions import PreemptMode, RequestAdmitted, RequestPreempted
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.execution.kv_store import KVStore
from engine.execution.runner import ModelRunner
from engine.protocol import Arrive, Message
from engine.text.model_source import ModelSource
from engine.text.text_model import TextModel, load_text_model
from kernels.cuda.backend import CudaBackend
from kernels.cuda.running import DeviceSteps
from kernels.cuda.staging import Staging
from kernels.decoder import DecoderShape
from recorder.header import Header
from replay.check import check
from replay.execute import execute
from replay.isolate import isolate
from replay.model_runs.open_model import OpenedRunner, Overrides
from tests.execution.test_swap import Timed
from tests.kernels.tiny_models import random_parameters
from tests.replay.recorded_runs import SALT, SCRIPTED_CLASS, TickingClock, entries_of, record_run

LIMITS = Limits(
    block_size=4,
    num_kv_blocks=7,
    max_model_len=28,
    max_num_seqs=3,
    max_num_batched_tokens=16,
    reserve_output="none",
    swap_space_blocks=12,
)
PREFIX = tuple(range(10, 18))  # two blocks


@pytest.fixture(scope="module")
def backend() -> CudaBackend:
    backend = CudaBackend()
    backend.load(random_parameters("Q4_0", DecoderShape(1, 64, 64, 4, 2, 16, 60, 1e-5)), LIMITS.max_model_len)
    return backend


@pytest.fixture(scope="module")
def text_model(default_source: ModelSource) -> TextModel:
    return load_text_model(default_source, encodes=False)


def load() -> list[tuple[int, Message]]:
    """Three requests that share their first two blocks; more than the pool holds."""
    return [(step, arrive(number)) for number, step in enumerate((0, 0, 2))]


def arrive(number: int) -> Arrive:
    sampling = SamplingParams(temperature=0.8 * (number % 2), seed=number, ignore_eos=True)
    contents = RequestContents((*PREFIX, *range(20 + number, 23 + number)))
    return Arrive(number, f"r{number}", "", 0, 0, 7, sampling, contents)


@pytest.fixture(scope="module")
def swapped(backend: CudaBackend, text_model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(backend, text_model, tmp_path_factory.mktemp("cuda") / "run", LIMITS)


def recorded(backend: CudaBackend, text_model: TextModel, folder: Path, limits: Limits) -> Path:
    return record_run(folder, load(), limits=limits, runner=Timed(runner(backend, text_model, limits)))


def runner(backend: CudaBackend, text_model: TextModel, limits: Limits) -> ModelRunner:
    store = KVStore.allocate(backend, limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
    return ModelRunner(backend, store, text_model, SALT, TickingClock(), keeps_kv_digests=True)


def test_a_recording_with_swaps_and_prefix_hits_is_decided_executed_and_isolated_again(
    backend: CudaBackend, text_model: TextModel, swapped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = [decision for entry in entries_of(swapped) for decision in entry.decisions]
    modes = {decision.mode for decision in decisions if isinstance(decision, RequestPreempted)}
    assert modes == {PreemptMode.SWAP}
    assert sum(each.num_hit_blocks for each in decisions if isinstance(each, RequestAdmitted)) >= 2

    def open_runner(header: Header, overrides: Overrides) -> OpenedRunner:
        limits = Limits.from_dict(header.limits)
        return OpenedRunner(runner(backend, text_model, limits), SCRIPTED_CLASS, {"backend": "cuda"})

    assert check(swapped).divergences == ()
    copies = counted(monkeypatch, Staging, "download")
    steps = counted(monkeypatch, DeviceSteps, "launch")
    executed = execute(swapped, open_runner=open_runner)
    assert len(copies) == len(steps) > 10, "one copy to the host in each step, sampled tokens and all"
    assert executed.exit_code == 0, executed.as_text()
    (preempted, *_) = [each.request for each in decisions if isinstance(each, RequestPreempted)]
    isolated = isolate(swapped, str(preempted), open_runner=open_runner)
    assert isolated.exit_code == 0, isolated.as_text()
    assert isolated.figures["tokens"] == 7
    assert not backend.read_back


def counted(monkeypatch: pytest.MonkeyPatch, kind: type, method: str) -> list[None]:
    """Grows with each call of the method."""
    calls: list[None] = []
    original = getattr(kind, method)

    def call(*arguments: Any) -> Any:
        calls.append(None)
        return original(*arguments)

    monkeypatch.setattr(kind, method, call)
    return calls
