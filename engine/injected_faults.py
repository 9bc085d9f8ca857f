"""Injected faults in a running engine: what `--inject` does there. Without it nothing of this is in its way."""

import os
from collections.abc import Callable, Sequence
from time import sleep

from engine.core.decisions import StepPlanned
from engine.execution.interface import Runner, StepResult
from engine.execution.launching import Launcher
from engine.injection import Injector, JumpingClock, parse_injection
from engine.log import Logger

log = Logger(__name__)
DEATH = 70  # exit code


class EngineEffects:
    """`cancel` puts a client's leave among the engine's messages; `fill_disk` stops the recorder."""

    def __init__(self, clock: JumpingClock, cancel: Callable[[int], None], fill_disk: Callable[[], None]) -> None:
        self._clock = clock
        self._cancel = cancel
        self._fill_disk = fill_disk

    def slow_down(self, nanoseconds: int) -> None:
        sleep(nanoseconds / 1e9)

    def jump(self, nanoseconds: int) -> None:
        self._clock.jump(nanoseconds)

    def fill_disk(self) -> None:
        self._fill_disk()

    def leave(self, request: int) -> None:
        self._cancel(request)

    def die(self) -> None:
        os._exit(DEATH)


def inject_into(runner: Runner, texts: Sequence[str], effects: EngineEffects) -> None:
    """From now on the runner's steps go wrong as `texts` say. Raises UnknownInjection."""
    injections = [parse_injection(part) for text in texts for part in text.split(",")]
    injector = Injector(injections, effects)
    execute = runner.execute
    log.warning("faults are injected", inject=list(texts))

    def after(result: StepResult) -> StepResult:
        completed = injector.after(result.completed)
        spoilt = {row[0] for row, was in zip(completed.emitted, result.completed.emitted, strict=True) if row != was}
        outputs = tuple([output for output in result.outputs if output.request not in spoilt])
        return StepResult(completed, outputs, result.prompts)

    def faulty(plan: StepPlanned) -> StepResult:
        injector.before(plan)
        return after(execute(plan))

    runner.execute = faulty  # type: ignore[method-assign]  # the one place where a runner is not what it was
    if isinstance(runner, Launcher):
        launch, collect = runner.launch, runner.collect

        def faulty_launch(plan: StepPlanned) -> None:
            injector.before(plan)
            launch(plan)

        runner.launch = faulty_launch  # type: ignore[method-assign]  # nor here
        runner.collect = lambda: after(collect())  # type: ignore[method-assign]  # nor here
