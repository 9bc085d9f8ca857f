"""A runner in front of another: it passes all on, and whoever derives from it looks at or changes what it wants to.

It must not know why.
"""

from engine.core.contents import RequestContents
from engine.core.decisions import Decision, StepPlanned
from engine.core.sampling_params import SamplingParams
from engine.execution.interface import Runner, StepResult


class PassingOn:
    """A `Runner`; the one behind it is `_runner`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        return self._runner.prompt_digests(contents)

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        self._runner.add_request(request, sampling, contents, digests)

    def carry_out(self, decision: Decision) -> None:
        self._runner.carry_out(decision)

    def execute(self, plan: StepPlanned) -> StepResult:
        return self._runner.execute(plan)
