"""`reprise doctor` says what runs here, and would say where a bit does not hold."""

import json

import numpy as np
import pytest

from daemon.__main__ import main
from engine.execution.model import Model
from kernels.backend import KVMemory, StepBatch, StepOutput
from kernels.cpu.backend import CpuBackend
from kernels.cuda_driver import ask_driver
from kernels.selftest import run_thorough_test


def test_doctor_shows_that_the_bits_hold_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["holds"]
    assert report["num_compared"] >= 5_000_000
    assert report["info"]["numerics_class"]


def test_doctor_names_what_cannot_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err


def test_without_a_gpu_doctor_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    if not ask_driver().missing:
        pytest.skip("there is a device here")
    assert main(["doctor", "--gpu"]) == 2
    told = capsys.readouterr()
    assert "auto tries               cpu, then reference" in told.out
    assert "nothing can be computed on a GPU here: no NVIDIA driver" in told.err
    assert main(["doctor", "--gpu", "--json"]) == 2
    gpu = json.loads(capsys.readouterr().out)["gpu"]
    assert gpu["driver"] == {"cuda_version": "", "devices": [], "missing": gpu["missing"]}


class _Batched:
    """A backend whose last bit depends on how many rows are computed together."""

    def __init__(self, backend: CpuBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        output = self._backend.forward(batch, keys, values)
        if len(batch.token_ids) == 33 and output.logits.size:
            output.logits.view(np.int32)[0, 0] ^= 1
        return output


def test_a_bit_that_follows_the_chunk_size_is_found(default_model: Model) -> None:
    backend = CpuBackend(2)
    backend.load(default_model.parameters, 1024)
    report = run_thorough_test(_Batched(backend), 2)  # type: ignore[arg-type]
    assert [failure for failure in report.failures if "chunks of 33" in failure]
    assert not [failure for failure in report.failures if "chunks of 64" in failure]
