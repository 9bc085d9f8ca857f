"""An engine served a load, as it is served by a daemon: the real loop, core, recorder, and a model or its twin.

Time is virtual, a step takes what its shape says, so that a seed gives the same on every machine; a load whose failure
depends on a real clock is served at its pace.
"""

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import sleep

from structlog.testing import capture_logs

from engine.clock import ManualClock
from engine.config import EngineConfig
from engine.core.decisions import Decision, StepPlanned
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.step_time import shape_of
from engine.execution.interface import Runner, StepResult
from engine.execution.passing_on import PassingOn
from engine.execution.runner import ModelRunner
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop
from engine.protocol import Message, Stop
from recorder.header import Header
from recorder.writer import Recorder
from replay.model_runs.open_model import OpenedRunner, Overrides, open_recorded_model
from replay.simulate.step_cost import StepCost

SALT = b"a salt of a zoo."
BACKEND_VARIABLE = "REPRISE_ZOO_BACKEND"  # that serves the models, in every process of a bug's examination
STEP_COST = StepCost(fixed_ns=1_000_000, decode_ns=200_000, context_ns=0, prefill_ns=100_000, pair_ns=0)
SWAP_NS_PER_BLOCK = 10_000
_MAX_STEPS = 5_000
opened_models: dict[Path, OpenedRunner] = {}  # one model's weights, from load to load


def serve(
    folder: Path, messages: list[tuple[int, Message]], limits: Limits, model: Path | None, *, at_pace: bool = False
) -> Path:
    """Record the load's run into `folder`; with a model, the contents too."""
    header = header_of(limits, model)
    clock = _PacedClock() if at_pace else ManualClock()
    if model is None:
        runner: Runner = ScriptedRunner(limits.num_kv_blocks, limits.block_size, SALT)
    else:
        opened = opened_models.get(model) or opened_models.setdefault(model, open_recorded_model(header, Overrides()))
        assert isinstance(opened.runner, ModelRunner)
        runner = opened.runner.emptied(limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
        header.environment.update(opened.environment)
    recorder = Recorder(
        folder, header, clock, record_content=model is not None, max_segment_bytes=64 << 20, sync_interval_ms=1_000
    )
    cause = "engine error"
    with capture_logs(), suppress(Exception):  # what ends an engine stands in its recording
        timed = TimedRunner(runner, clock)
        loop = EngineLoop(Core(limits), timed, clock, recorder, lambda entry, outputs: None)
        cause = loop.serve(TimedInbox(messages, clock))
    recorder.close(cause)
    return folder


def header_of(limits: Limits, model: Path | None) -> Header:
    if model is None:
        environment = {"numerics_class": "scripted", "backend": "scripted", "model": "scripted"}
        return Header(salt=SALT, limits=limits.to_dict(), config={"model": "scripted"}, environment=environment)
    backend = os.environ.get(BACKEND_VARIABLE) or "reference"
    config = EngineConfig(model=str(model), backend=backend, num_threads=1)
    from engine.text.model_source import resolve_model

    sha256 = resolve_model(str(model)).sha256
    environment = {"backend": backend, "model_sha256": sha256}
    return Header(salt=SALT, limits=limits.to_dict(), config=asdict(config), environment=environment)


class _PacedClock(ManualClock):
    """Time passes on the wall as well."""

    def advance(self, nanoseconds: int) -> None:
        sleep(nanoseconds / 1e9)
        super().advance(nanoseconds)


class TimedRunner(PassingOn):
    """A runner whose steps take what their shape says."""

    def __init__(self, runner: Runner, clock: ManualClock) -> None:
        super().__init__(runner)
        self._clock = clock
        self._num_copied = 0

    def carry_out(self, decision: Decision) -> None:
        self._num_copied += len(getattr(decision, "host_blocks", ()))
        super().carry_out(decision)

    def execute(self, plan: StepPlanned) -> StepResult:
        if plan.step > _MAX_STEPS:
            raise RuntimeError("the load does not end")
        swap_ns, self._num_copied = self._num_copied * SWAP_NS_PER_BLOCK, 0
        execute_ns = STEP_COST.of(shape_of(plan.rows))
        self._clock.advance(execute_ns + swap_ns)
        result = super().execute(plan)
        completed = result.completed._replace(execute_ns=execute_ns, sample_ns=0, swap_ns=swap_ns)
        return result._replace(completed=completed)


class TimedInbox:
    """Messages come at their times; while the engine is idle, time jumps to the next."""

    def __init__(self, messages: list[tuple[int, Message]], clock: ManualClock) -> None:
        self._messages = messages
        self._clock = clock

    def get(self) -> Message:
        if not self._messages:
            return Stop("the load is done")
        at_ns, message = self._messages.pop(0)
        self._clock.advance(max(0, at_ns - self._clock.now_ns()))
        return message

    def drain(self) -> list[Message]:
        due = [message for at_ns, message in self._messages if at_ns <= self._clock.now_ns()]
        del self._messages[: len(due)]
        return due
