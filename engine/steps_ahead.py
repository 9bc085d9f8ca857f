"""Steps with the next one planned while one runs: launch, let the core plan, collect, launch the next, tell the result.

    launch k ─► what has come in ─► StepLaunched(k): the core plans k+1 ─► collect k ─► launch k+1 ─► StepCompleted(k)

Two steps are never on the device at once. So one rule keeps a step's memory its own: while it runs nothing that the
core decides is carried out. It is held back, in order, until the step is collected; then come the copies to and from
the host pool, block tables, requests that have ended, and after these the next launch. That launch knows the tokens of
the step before, for they were drawn when it was collected; requests that ended with them have no row in it.

Where KV blocks are watched the launch waits for the result to be told as well: a block that went wrong must be known
before the step that reads it. It must not know what is planned, nor why.
"""

from typing import TYPE_CHECKING

from engine.core.decisions import Decision, StepPlanned
from engine.core.events import StepFailed
from engine.core.limits import MAX_ERROR_CHARS
from engine.execution.interface import Runner, StepResult
from engine.execution.launching import launcher_of
from engine.log import Logger

if TYPE_CHECKING:
    from engine.loop import EngineLoop, Inbox

log = Logger(__name__)


class StepsAhead:
    """Runs the steps of `loop`, and carries out for it."""

    def __init__(self, loop: "EngineLoop", runner: Runner) -> None:
        self._loop = loop
        self._runner = runner
        self._launcher = launcher_of(runner)
        self._running: StepPlanned | None = None
        self._launch_error: Exception | None = None
        self._held_back: list[Decision] = []

    def carry_out(self, decision: Decision) -> None:
        """Now, or as soon as the step that runs has been collected."""
        if self._running is None:
            self._runner.carry_out(decision)
        else:
            self._held_back.append(decision)

    def run_step(self, inbox: "Inbox") -> None:
        """From the launch of the planned step, unless it runs already, to the telling of its result."""
        loop = self._loop
        plan = loop.take_plan()
        if self._running is None:
            self._launch(plan)
        loop.take_waiting(inbox)
        loop.tell_launch(plan.step)
        result = self._collect(plan)
        if loop.plan is None:  # whoever has come by now takes part in the planning
            loop.take_waiting(inbox)
        self._carry_out_held_back()
        if loop.plan is not None and loop.may_go_on_at_once and isinstance(result, StepResult):
            self._launch(loop.plan)
        loop.tell_result(result)

    def _launch(self, plan: StepPlanned) -> None:
        self._running = plan
        try:
            self._launcher.launch(plan)
        except Exception as error:  # told when the step is collected
            self._launch_error = error

    def _collect(self, plan: StepPlanned) -> StepResult | StepFailed:
        error, self._launch_error = self._launch_error, None
        try:
            if error is not None:
                raise error
            return self._launcher.collect()
        except Exception as error:  # whatever a kernel raises ends these requests, never the engine
            return failed(plan, error)

    def _carry_out_held_back(self) -> None:
        held_back, self._held_back, self._running = self._held_back, [], None
        for decision in held_back:
            self._runner.carry_out(decision)


def failed(plan: StepPlanned, error: Exception) -> StepFailed:
    """The event that the core is told, and a line in the log."""
    log.exception("step failed", step=plan.step, num_rows=len(plan.rows))
    return StepFailed(plan.step, f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])
