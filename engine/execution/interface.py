"""What the loop and replay need of execution: decisions in, results out, with or without weights behind it."""

from typing import NamedTuple, Protocol

from engine.core.contents import PromptLogprobs, RequestContents, TokenOutput
from engine.core.decisions import Decision, StepPlanned
from engine.core.events import StepCompleted
from engine.core.sampling_params import SamplingParams


class StepResult(NamedTuple):
    """
    completed   the event for the core
    outputs     the tokens drawn, in the order of `completed.emitted`; a row flagged ERROR drew none
    prompts     of each prompt that the step has finished, what was asked about it; as `completed.prompt_logprobs` says
    """

    completed: StepCompleted
    outputs: tuple[TokenOutput, ...]
    prompts: tuple[PromptLogprobs, ...] = ()


class Runner(Protocol):
    """Carries out what the core decided. Called from one thread; it never decides who runs."""

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        """Keyed, chained digests of the prompt's full blocks, for RequestArrived."""
        ...

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        """Hold a request's tokens until it is finished or rejected; call it before the core sees the arrival.

        digests   what `prompt_digests` gave for `contents`; without them they are computed when they are needed
        """
        ...

    def carry_out(self, decision: Decision) -> None:
        """Follow any decision but StepPlanned: keep block tables, drop requests that ended."""
        ...

    def execute(self, plan: StepPlanned) -> StepResult:
        """Run the planned step. A row whose request is no longer held is skipped. May raise: the step has failed."""
        ...
