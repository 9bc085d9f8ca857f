"""Executors with a planted fault: what execute and isolate must find."""

from collections.abc import Callable

from engine.core.decisions import StepPlanned
from engine.execution.interface import StepResult
from engine.execution.scripted import ScriptedRunner
from tests.replay.recorded_runs import LIMITS, SALT


class FaultyRunner(ScriptedRunner):
    """Calls `before_step` with itself and the plan before each step."""

    def __init__(self, before_step: Callable[["FaultyRunner", StepPlanned], None]) -> None:
        super().__init__(LIMITS.num_kv_blocks, LIMITS.block_size, SALT)
        self._before_step = before_step

    def execute(self, plan: StepPlanned) -> StepResult:
        self._before_step(self, plan)
        return super().execute(plan)

    def block_table(self, request: int) -> list[int]:
        return self._requests[request].block_table


class OtherClassRunner(ScriptedRunner):
    """The same tokens from other bits, as another backend would give."""

    def execute(self, plan: StepPlanned) -> StepResult:
        result = super().execute(plan)
        emitted = tuple((request, flag, digest ^ 1, bits) for request, flag, digest, bits in result.completed.emitted)
        return result._replace(completed=result.completed._replace(emitted=emitted))


def overwrite_a_slot_in_step(step: int) -> Callable[[FaultyRunner, StepPlanned], None]:
    """In `step`, one KV slot of the step's last row's request is overwritten by its first row's."""

    def before_step(runner: FaultyRunner, plan: StepPlanned) -> None:
        if plan.step == step:
            assert len(plan.rows) > 1, "choose a step that several requests share"
            writer, victim = plan.rows[0][0], plan.rows[-1][0]
            source = runner.block_table(writer)[0] * LIMITS.block_size
            runner.slots[runner.block_table(victim)[0] * LIMITS.block_size] = runner.slots[source + 1]

    return before_step
