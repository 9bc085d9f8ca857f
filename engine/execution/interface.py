"""What the loop asks of an executor. Execution never decides who runs: it carries out what the core decided."""

from typing import NamedTuple, Protocol

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import Decision, StepPlanned
from engine.core.events import StepCompleted
from engine.core.sampling_params import SamplingParams


class StepResult(NamedTuple):
    """A step's result: the event for the core, and the tokens it stands for, in the order of `completed.emitted`."""

    completed: StepCompleted
    outputs: tuple[TokenOutput, ...]


class Runner(Protocol):
    """An executor of planned steps: the model (`runner.py`) or its twin without weights (`scripted.py`)."""

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        """Keyed, chained digests of the prompt's full blocks, for the RequestArrived event."""
        ...

    def add_request(self, request: int, sampling: SamplingParams, contents: RequestContents) -> None:
        """Hold a request's tokens from its arrival until the decision that ends or rejects it."""
        ...

    def carry_out(self, decision: Decision) -> None:
        """Follow a decision other than StepPlanned: block tables of the admitted, preempted, finished and rejected."""
        ...

    def execute(self, plan: StepPlanned) -> StepResult:
        """Compute the planned rows. Whatever it raises fails the step's requests, and them alone."""
        ...
