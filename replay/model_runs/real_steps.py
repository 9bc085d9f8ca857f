"""Steps of a counterfactual, executed: the recorded model on the recorded contents, each step as long as it takes.

Time stands still while there is nothing to do: until the next input comes it is skipped, so a quiet hour costs nothing.
"""

from collections.abc import Callable
from dataclasses import replace

from engine.clock import SystemClock
from engine.core.decisions import Decision, StepPlanned
from engine.core.errors import EngineError
from engine.core.events import RequestArrived, StepCompleted, StepFailed
from engine.core.limits import MAX_ERROR_CHARS
from engine.core.scheduler import Core
from engine.execution.interface import Runner
from recorder.vault import Contents
from replay.lives import Life
from replay.model_runs.open_model import OpenRunner, Overrides, open_recorded_model
from replay.refusal import CannotCompare
from replay.what_if.counterfactual import Planned
from replay.what_if.recorded_load import RecordedLoad
from replay.what_if.scenario import Scenario


class SkippingClock:
    """The system's clock, set to begin at a recorded time; what nobody waits for is skipped."""

    def __init__(self, now_ns: int, wall_offset_ns: int) -> None:
        self._clock = SystemClock()
        self._offset_ns = now_ns - self._clock.now_ns()
        self._wall_offset_ns = wall_offset_ns

    def now_ns(self) -> int:
        return self._clock.now_ns() + self._offset_ns

    def wall_ns(self) -> int:
        return self.now_ns() + self._wall_offset_ns

    def skip_to(self, at_ns: int) -> None:
        self._offset_ns += max(0, at_ns - self.now_ns())


class RealSteps:
    """The `Steps` of an execution."""

    def __init__(self, runner: Runner, contents: Contents, clock: SkippingClock) -> None:
        self.clock = clock
        self._runner = runner
        self._contents = contents

    def wait_until(self, at_ns: int) -> None:
        self.clock.skip_to(at_ns)

    def arrived(self, event: RequestArrived) -> RequestArrived:
        contents = self._contents.prompts.get(event.request)
        if contents is not None and event.num_output_tokens > len(contents.output_token_ids):
            outputs = tuple(self._contents.outputs(event.request)[: event.num_output_tokens])
            contents = contents._replace(output_token_ids=outputs)  # it was under way where the stretch begins
        if contents is None or len(contents.output_token_ids) < event.num_output_tokens:
            raise CannotCompare(
                f"what request {event.request} had is not among the recorded contents, so it cannot be run",
                "predict it instead: without --execute",
            )
        digests = self._runner.prompt_digests(contents)
        self._runner.add_request(event.request, event.sampling, contents, digests)
        return event._replace(prompt_digests=digests)

    def carry_out(self, decision: Decision) -> None:
        self._runner.carry_out(decision)

    def execute(self, planned: Planned, core: Core) -> StepCompleted | StepFailed:
        plan: StepPlanned = planned.plan
        try:
            return self._runner.execute(plan).completed
        except EngineError:
            raise
        except Exception as error:  # as in the engine's loop: it ends these requests, not the run
            return StepFailed(plan.step, f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])


def opener(
    overrides: Overrides, open_runner: OpenRunner = open_recorded_model
) -> Callable[[Life, Scenario, RecordedLoad], RealSteps]:
    """Opens the recorded model under a scenario's limits. Raises NoContents, CannotCompare, ModelError."""

    def open_steps(life: Life, scenario: Scenario, load: RecordedLoad) -> RealSteps:
        contents = life.contents()
        header = replace(life.header, limits=scenario.limits.to_dict())
        opened = open_runner(header, overrides)
        clock = SkippingClock(load.first_ns, header.created_wall_ns - header.created_now_ns)
        return RealSteps(opened.runner, contents, clock)

    return open_steps
