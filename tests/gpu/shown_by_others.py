"""What other programs show: the suite's own tests on the device, and compute-sanitizer over a few steps."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from kernels.gpu_report import look_at_gpu
from kernels.packing import SequenceRows, pack_batch
from tests.gpu.stage import Outcome, Stage, now_ns

ROOT = Path(__file__).parents[2]
SUITES = (  # parametrised by backend, and in need of no package beyond those that `carry.sh` brings
    "tests/execution/test_swap.py",
    "tests/execution/test_silent_corruption.py",
    "tests/execution/test_invariance.py",
    "tests/kernels/test_trace.py",
)
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
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda", *SUITES, "--timeout=60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    lines = done.stdout.splitlines()
    said = [", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing ran"]
    said += [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return Outcome(done.returncode == 0 and counts.get("passed", 0) > 0, said, {**counts, "exit_code": done.returncode})


def sanitizer(stage: Stage) -> Outcome:
    """No access outside of memory and no race in a prefill and a decode, as compute-sanitizer sees it."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return Outcome(True, ["compute-sanitizer is not installed: nothing was looked at"], {"installed": False})
    figures: dict[str, object] = {"installed": True}
    found = []
    for kind in TOOLS:
        command = [tool, "--tool", kind, "--error-exitcode", "9", sys.executable, "-m", "tests.gpu", "--few-steps"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        figures[kind] = done.returncode
        found += [] if done.returncode == 0 else [f"{kind}: {line}" for line in done.stdout.splitlines()[-12:]]
    return Outcome(not found, [f"{' and '.join(TOOLS)}: {'clean' if not found else 'errors'}", *found], figures)


def few_steps(stage: Stage) -> None:
    """A prefill chunk and two decodes, launch by launch: what the sanitizer watches."""
    backend = stage.backend()
    memory = backend.new_kv(32, 16)
    vocabulary = stage.parameters.shape.vocab_size
    tokens = [token * 7 % vocabulary for token in range(stage.size(270, 6))]
    rows = [SequenceRows(tokens, 0, range(20), 1), SequenceRows(tokens[:3], 0, (21,), 1)]
    backend.forward(pack_batch(rows, 16), *memory)
    later = [SequenceRows([5], len(tokens), range(20), 1), SequenceRows([6], 3, (21,), 1)]
    backend.forward(pack_batch(later, 16), *memory)
