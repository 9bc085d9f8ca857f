"""`reprise doctor`: what this machine can run, and whether the bits hold here, before anybody relies on it.

It loads the model as the engine would and compares far more than the start-up self-test does. With --gpu it looks at
the GPU first, then compares on it, beside a KV pool of the size that serving would take, and says how large that is;
where nothing can be computed on one it says what is missing.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.errors import EngineError
from engine.core.limits import Limits

if TYPE_CHECKING:
    from kernels.gpu_report import GpuReport

_KEY = bytes(16)  # no recording is made
_TEST_LIMITS = Limits(num_kv_blocks=1)  # the tests bring their own KV memory


@dataclass(frozen=True, slots=True)
class Examination:
    """
    info       as a recording's header names the environment
    failures   claims that do not hold on this machine
    """

    info: dict[str, Any]
    num_compared: int
    failures: tuple[str, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        return 1 if self.failures else 0

    def as_text(self) -> str:
        lines = [f"{name:24} {value}" for name, value in self.info.items() if not name.startswith("self_test")]
        lines += [f"differs                  {failure}" for failure in self.failures]
        verdict = "P4 does not hold here" if self.failures else "P4 holds here"
        lines.append(f"{verdict}: {self.num_compared:,} float32 values compared bit for bit in {self.seconds:.1f} s")
        return "\n".join(lines)

    def as_json(self, gpu: "GpuReport | None" = None) -> str:
        values = {
            **({} if gpu is None else {"gpu": asdict(gpu)}),
            "holds": not self.failures,
            "num_compared": self.num_compared,
            "failures": list(self.failures),
            "seconds": self.seconds,
            "info": self.info,
        }
        return json.dumps(values, indent=2)


def examine(config: EngineConfig) -> Examination:
    """Load `config`'s model and compare. Raises EngineError when it cannot be loaded."""
    from engine.execution.build import build_runner
    from kernels.selftest import run_thorough_test

    clock = SystemClock()
    limits = None if config.backend == "cuda" else _TEST_LIMITS  # a GPU's pool is made as serving would make it
    built = build_runner(config, _KEY, clock, limits=limits)
    started_ns = clock.now_ns()
    report = run_thorough_test(built.runner.backend, int(built.info["num_threads"]))
    seconds = (clock.now_ns() - started_ns) / 1e9
    return Examination(built.info, report.num_compared, report.failures, seconds)


def run(arguments: argparse.Namespace) -> int:
    """The verb; returns the exit code: 0 the bits hold, 1 they do not. Raises EngineError."""
    config = EngineConfig(
        model=arguments.model,
        backend="cuda" if arguments.gpu else arguments.backend,
        dtype=arguments.dtype,
        num_threads=arguments.num_threads,
    )
    gpu = _look_at_gpu() if arguments.gpu else None
    if gpu is not None and (gpu.missing or not arguments.json):
        print(json.dumps({"gpu": asdict(gpu)}, indent=2) if arguments.json else "\n".join(gpu.lines()))
    if gpu is not None and gpu.missing:
        raise EngineError(f"nothing can be computed on a GPU here: {gpu.missing}")
    examination = examine(config)
    print(examination.as_json(gpu) if arguments.json else examination.as_text())
    return examination.exit_code


def _look_at_gpu() -> "GpuReport":
    from kernels.gpu_report import look_at_gpu

    return look_at_gpu(SystemClock().now_ns)
