"""Steps planned while the device runs the one before: launched and collected, they leave the bits of steps in turn."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.events import StepCompleted, StepLaunched
from engine.core.limits import Limits
from engine.execution.kv_store import KVStore
from engine.execution.runner import ModelRunner
from engine.text.model_source import ModelSource
from engine.text.text_model import load_text_model
from kernels.backend import LaunchingBackend
from kernels.cuda.backend import CudaBackend
from kernels.cuda.running import DeviceSteps
from kernels.decoder import DecoderShape
from replay.check import check
from tests.execution.interpreted.test_promises import arrive
from tests.kernels.tiny_models import random_parameters
from tests.replay.recorded_runs import SALT, TickingClock, bits_of, entries_of, record_run

LIMITS = Limits(block_size=4, num_kv_blocks=14, max_model_len=28, max_num_seqs=3, max_num_batched_tokens=16)


def test_every_request_has_the_bits_that_it_has_in_turn(
    default_source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = CudaBackend()
    backend.load(random_parameters("Q4_0", DecoderShape(1, 64, 64, 4, 2, 16, 60, 1e-5)), LIMITS.max_model_len)
    assert isinstance(backend, LaunchingBackend)
    text_model = load_text_model(default_source, encodes=False)
    launches: list[str] = []
    for method, name in (("launch", "launch"), ("_synchronize", "wait")):
        monkeypatch.setattr(DeviceSteps, method, noting(launches, name, getattr(DeviceSteps, method)))
    messages = [(step, arrive(number)._replace(max_output_tokens=4)) for number, step in enumerate((0, 0))]

    def recorded(name: str, *, plans_ahead: bool) -> Path:
        store = KVStore.allocate(backend, LIMITS.num_kv_blocks, LIMITS.block_size)
        runner = ModelRunner(backend, store, text_model, SALT, TickingClock())
        limits = replace(LIMITS, async_scheduling=plans_ahead)
        return record_run(tmp_path / name, [*messages], limits=limits, runner=runner)

    ahead, in_turn = recorded("ahead", plans_ahead=True), recorded("in-turn", plans_ahead=False)
    assert bits_of(ahead) == bits_of(in_turn)
    assert check(ahead).divergences == ()
    events = [entry for entry in entries_of(ahead) if isinstance(entry.event, StepCompleted | StepLaunched)]
    num_ahead = sum(isinstance(entry.event, StepLaunched) and bool(entry.decisions) for entry in events)
    assert num_ahead > len(events) // 4
    assert launches == ["launch", "wait"] * (len(launches) // 2), "one step is on the device at a time"


def noting(log: list[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any) -> Any:
        log.append(name)
        return call(*args)

    return noted
