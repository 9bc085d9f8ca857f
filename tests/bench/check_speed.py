"""How fast a recording is checked: its events through a fresh core, and `reprise check` as a whole, from the file."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engine.clock import SystemClock
from engine.core.contents import RequestContents
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry, RecordingClosed
from engine.protocol import Arrive, Message
from recorder.reader import Recording
from replay.check import check
from replay.player import Decider
from tests.replay.recorded_runs import record_run

PROMPT_TOKENS = 48
OUTPUT_TOKENS = 120
NUM_TRIES = 7
STEP_MS = 20.0  # what a step of a small model with 64 rows takes on two cores: real time is counted in such steps


class CheckSpeed(NamedTuple):
    """
    core_entries_per_s    of `Core.handle` alone, the entries in memory
    check_entries_per_s   with reading, decoding and comparing
    times_real_time       of the whole check, at STEP_MS a step
    """

    core_entries_per_s: float
    check_entries_per_s: float
    times_real_time: float


def measure(num_running: int) -> CheckSpeed:
    """The best of NUM_TRIES of each: whatever else runs can only make it slower."""
    with tempfile.TemporaryDirectory() as folder:
        path = _record(Path(folder) / "run", num_running)
        verdict = check(path)
        assert verdict.exit_code == 0, verdict.as_text()
        check_s = _best_seconds(lambda: check(path))
        recording = Recording.open(path)
        entries = [entry for entry in recording.entries() if not isinstance(entry.event, RecordingClosed)]
    limits = Limits.from_dict(recording.header.limits)
    core_s = _best_seconds(lambda: _decide_again(entries, limits))
    steps_per_s = verdict.figures["steps"] / check_s
    return CheckSpeed(len(entries) / core_s, len(entries) / check_s, steps_per_s * STEP_MS / 1_000)


def _decide_again(entries: list[Entry], limits: Limits) -> None:
    core: Decider = Core(limits)
    for entry in entries:
        core.handle(entry.event, entry.now_ns)


def _best_seconds(run: Callable[[], object]) -> float:
    clock, costs = SystemClock(), list[int]()
    for _ in range(NUM_TRIES):
        before = clock.now_ns()
        run()
        costs.append(clock.now_ns() - before)
    return min(costs) / 1e9


def _record(directory: Path, num_running: int) -> Path:
    """Half again as many requests as run at once, of unequal lengths, so that some wait for the end of others."""
    limits = Limits(
        num_kv_blocks=num_running * ((PROMPT_TOKENS + OUTPUT_TOKENS) // 16 + 2),
        max_num_seqs=num_running,
        max_num_batched_tokens=num_running * 8,
        max_num_queued_reqs=num_running * 2,
        max_model_len=1024,
    )
    messages: list[tuple[int, Message]] = []
    for request in range(num_running * 3 // 2):
        contents = RequestContents(tuple(range(request, request + PROMPT_TOKENS)))
        sampling = SamplingParams(seed=request, ignore_eos=True)
        num_output_tokens = OUTPUT_TOKENS - request % 16
        messages.append((0, Arrive(request, str(request), "", 0, 0, num_output_tokens, sampling, contents)))
    return record_run(directory, messages, limits=limits, record_content=False)


def report() -> list[str]:
    lines = [f"check speed, simulated runs (goal: 100 × real time at 64 running; here a step counts {STEP_MS:g} ms)"]
    for num_running in (1, 16, 64):
        speed = measure(num_running)
        lines.append(
            f"  {num_running:4d} running   core alone {speed.core_entries_per_s:8,.0f} entries/s   "
            f"check {speed.check_entries_per_s:8,.0f} entries/s, {speed.times_real_time:6,.0f} × real time"
        )
    return lines
