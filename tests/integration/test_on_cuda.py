"""The cases and what else is shown of a whole daemon, once more with the cuda backend where there is a GPU.

Every option of `serve` that a test does not give is taken from the environment, so the same files run as they are.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cuda_driver import ask_driver

HERE = Path(__file__).parent
FILES = [
    f"test_{name}.py"
    for name in (
        "cancel",
        "capacity",
        "fairness",
        "gemma3",
        "hostile_http",
        "lifecycle",
        "mixed_load",
        "openai_client",
        "planted_faults",
        "preemption",
        "prefix_cache",
        "queue_cancel",
        "resumption",
        "streaming_text",
        "structured_output",
    )
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", FILES)
def test_a_daemon_on_a_gpu_shows_the_same(file: str) -> None:
    if missing := ask_driver().missing:
        pytest.skip(f"cuda: {missing}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", str(HERE / file)]
    environment = {**os.environ, "REPRISE_BACKEND": "cuda"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:]
