"""What an engine with the native backend loads, and what it does without: a new interpreter is asked."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.kernels.cpu_library import instruction_sets

instruction_sets()  # skips all of this where the library is not built

UNNEEDED = {"torch", "tokenizers", "jinja2", "gguf", "rich"}
ANSWER = """
import json, sys
import engine.process
from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.decisions import RequestAdmitted, StepPlanned
from engine.core.sampling_params import SamplingParams
from engine.execution.build import build_runner

config = EngineConfig(model="smollm2-135m-instruct", backend="cpu", num_kv_blocks=8, num_threads=1)
built = build_runner(config, bytes(16), SystemClock())
built.runner.add_request(0, SamplingParams(seed=1), RequestContents((1, 2, 3), stop_strings=("never",)))
built.runner.carry_out(RequestAdmitted(0, (0,), 0, (), 0, 0))
result = built.runner.execute(StepPlanned(0, ((0, 0, 3),), (), (), 1, 0, 0, 0))
status = open("/proc/self/status").read().split()
figures = {"outputs": len(result.outputs), "file_kb": int(status[status.index("RssFile:") + 1])}
print(json.dumps({**figures, "info": built.info, "packages": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


@pytest.fixture(scope="module")
def answered() -> dict[str, Any]:
    """After one answer's first token, stop strings and all."""
    done = subprocess.run([sys.executable, "-c", ANSWER], capture_output=True, text=True, timeout=120, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["outputs"] == 1
    return report


def test_an_engine_with_the_native_backend_imports_no_torch_and_nothing_else_it_does_not_need(
    answered: dict[str, Any],
) -> None:
    assert not UNNEEDED & set(answered["packages"])


def test_its_account_names_the_versions_that_its_numbers_depend_on(answered: dict[str, Any]) -> None:
    info = answered["info"]
    assert info["backend"] == "cpu"
    assert info["numpy"] == np.__version__
    assert not {"torch", "numeric_environment"} & set(info)


def test_the_models_file_is_not_kept_in_memory_beside_its_tiles(answered: dict[str, Any]) -> None:
    """The file has 94 MB; libraries and the rows of the embedding that were read take 25."""
    assert answered["file_kb"] < 60_000
