"""What other programs show: the suite's own tests on the device, and compute-sanitizer over a few steps."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from kernels.gpu_report import look_at_gpu
from kernels.packing import SequenceRows, pack_batch
from tests.gpu.stage import Outcome, Stage, now_ns
from tests.model_fixtures import TEST_MODEL

ROOT = Path(__file__).parents[2]
OF_THE_MODEL = "tests/execution/test_invariance.py"  # needs the default model itself
SUITES = (  # parametrised by backend, and in need of no package beyond those that `carry.sh` brings
    "tests/execution/test_swap.py",
    "tests/execution/test_silent_corruption.py",
    "tests/kernels/test_trace.py",
    "tests/kernels/test_cuda_invariance.py",
    "tests/zoo/test_zoo.py",
    OF_THE_MODEL,
)
SANITIZER = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck")


def machine(stage: Stage) -> Outcome:
    """Device, driver, versions, measured rates: what all the others are read against."""
    report = look_at_gpu(now_ns)
    figures = {
        "devices": [device.name for device in report.driver.devices],
        "capability": [device.capability for device in report.driver.devices],
        "driver_cuda": report.driver.cuda_version,
        "versions": report.versions,
        "torch_cuda": report.torch_cuda,
        "auto_tries": report.auto_tries,
        "bytes_per_second": report.bytes_per_second,
        "flops_per_second": report.flops_per_second,
        "missing": report.missing,
    }
    name = ", ".join(device.name for device in report.driver.devices) or "no GPU"
    return Outcome(stage.is_dry or not report.missing, [name, *report.lines()], figures)


def engine_tests(stage: Stage) -> Outcome:
    """Those of the suite that are parametrised by backend, with `cuda`; the interpreter's have a run of their own."""
    if stage.is_dry:
        return Outcome(True, ["not part of a dry run: the suite runs them in the interpreter"], {})
    suites, environment = list(SUITES), dict(os.environ)
    if stage.source is None:
        from tests.gpu.made_models import write_tokens

        suites.remove(OF_THE_MODEL)
        environment[TEST_MODEL] = str(write_tokens(stage.folder / "tokens", 49152))
    options = ["-q", "-p", "no:cacheprovider", "-k", "cuda", "-m", "not slow", "--timeout=60"]
    options += [
        "--continue-on-collection-errors",
        "-o",
        "filterwarnings=default",
    ]  # of other versions of numpy and torch than ours
    command = [sys.executable, "-m", "pytest", *options, *suites]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    lines = done.stdout.splitlines()
    said = [", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing ran"]
    said += [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-3:] + done.stderr.splitlines()[
        -5:
    ]
    return Outcome(done.returncode == 0 and counts.get("passed", 0) > 0, said, {**counts, "exit_code": done.returncode})


def sanitizer(stage: Stage) -> Outcome:
    """No access outside of memory and no race in a prefill and a decode, as compute-sanitizer sees it."""
    tool = shutil.which(SANITIZER) or shutil.which(SANITIZER, path="/usr/local/cuda/bin")
    if tool is None:
        return Outcome(True, ["compute-sanitizer is not installed: nothing was looked at"], {"installed": False})
    figures: dict[str, object] = {"installed": True}
    found, looked = list[str](), list[str]()
    for kind in TOOLS:
        command = [tool, "--tool", kind, "--error-exitcode", "9", sys.executable, "-m", "tests.gpu", "--few-steps"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if "Device not supported" in done.stdout + done.stderr:
            return Outcome(True, ["compute-sanitizer refuses this device: nothing was looked at"], {"refused": True})
        figures[kind] = done.returncode
        found += [] if done.returncode == 0 else [f"{kind}: {line}" for line in done.stdout.splitlines()[-12:]]
        looked.append(kind)
        stage.keep(_looked(looked, found, figures))
    return _looked(looked, found, figures)


def _looked(kinds: list[str], found: list[str], figures: dict[str, object]) -> Outcome:
    return Outcome(not found, [f"{' and '.join(kinds)}: {'clean' if not found else 'errors'}", *found], dict(figures))


def few_steps(stage: Stage) -> None:
    """A prefill chunk and two decodes of two layers, launch by launch: what the sanitizer watches."""
    from kernels.cuda.backend import CudaBackend
    from tests.gpu.made_models import SMALL, made_weights

    shape = replace(SMALL, num_layers=2)
    backend = CudaBackend()
    backend.load_made(shape, lambda: made_weights(shape, "Q4_1", "Q8_0", stage.device))
    memory = backend.new_kv(32, 16)
    vocabulary = shape.vocab_size
    tokens = [token * 7 % vocabulary for token in range(stage.size(270, 6))]
    rows = [SequenceRows(tokens, 0, range(20), 1), SequenceRows(tokens[:3], 0, (21,), 1)]
    backend.forward(pack_batch(rows, 16), *memory)
    later = [SequenceRows([5], len(tokens), range(20), 1), SequenceRows([6], 3, (21,), 1)]
    backend.forward(pack_batch(later, 16), *memory)
