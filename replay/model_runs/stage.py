"""The recorded model on a stage: loaded once, performing one scenario after the other, each with an empty memory."""

from collections.abc import Generator, Hashable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import Decision, StepPlanned
from engine.core.events import RequestArrived, StepCompleted
from engine.core.limits import Limits
from engine.execution.interface import Runner
from recorder.header import Header
from replay.divergence import EmittedToken
from replay.execute import execute
from replay.model_runs.alone import run_alone
from replay.model_runs.open_model import OpenedRunner, OpenRunner, Overrides, open_recorded_model
from replay.shrink.scenario import Caller
from replay.tokens import Computed
from replay.verdict import Verdict


class ModelStage:
    """A `Stage` of `shrink/evidence.py`, and the maker of executors for `shrink/rehearsal.py`."""

    def __init__(self, header: Header, overrides: Overrides, open_runner: OpenRunner | None = None) -> None:
        self._header = header
        self._overrides = overrides
        self._open = open_runner or open_recorded_model
        self._opened: OpenedRunner | None = None
        self._alone: dict[Hashable, list[Computed]] = {}

    def executor(self, limits: Limits) -> "ModelExecutor":
        return ModelExecutor(self._runner(limits))

    def alone(
        self, arrived: RequestArrived, contents: RequestContents, limits: Limits
    ) -> Generator[Computed, None, None]:
        """Computed once for a prompt, and told again as often as it is asked."""
        key = (contents, arrived.sampling, arrived.max_output_tokens, limits)
        if key not in self._alone:
            self._alone[key] = list(run_alone(arrived, contents, limits, self._runner(limits)))
        yield from (computed._replace(token=_of(computed, arrived.request)) for computed in self._alone[key])

    def text(self, token_ids: Sequence[int]) -> str:
        """The answer's text; where no model gives one, its token ids."""
        from engine.execution.runner import ModelRunner

        runner = self._opened.runner if self._opened else None
        if isinstance(runner, ModelRunner):
            return runner.text_of(token_ids)
        return " ".join(map(str, token_ids))

    def execute(self, recording: Path) -> Verdict:
        def open_here(header: Header, overrides: Overrides) -> OpenedRunner:
            runner = self._runner(Limits.from_dict(header.limits))
            assert self._opened is not None
            return self._opened._replace(runner=runner)

        return execute(recording, overrides=self._overrides, open_runner=open_here)

    def _runner(self, limits: Limits) -> Runner:
        """With the weights that are loaded, and nothing in its memory."""
        from engine.execution.runner import ModelRunner

        loaded = self._opened.runner if self._opened else None
        if isinstance(loaded, ModelRunner):
            return loaded.emptied(limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
        self._opened = self._open(replace(self._header, limits=limits.to_dict()), self._overrides)
        return self._opened.runner


def _of(computed: Computed, request: int) -> EmittedToken:
    return computed.token._replace(request=request)


class ModelExecutor:
    """Decisions carried out by a runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def arrive(self, caller: Caller) -> RequestArrived:
        contents, arrived = caller.contents, caller.arrived
        assert contents is not None, f"request {caller.number} has no contents to compute from"
        digests = self._runner.prompt_digests(contents)
        self._runner.add_request(caller.number, arrived.sampling, contents, digests)
        return arrived._replace(prompt_digests=digests)

    def carry_out(self, decision: Decision) -> None:
        self._runner.carry_out(decision)

    def execute(self, plan: StepPlanned) -> tuple[StepCompleted, tuple[TokenOutput, ...]]:
        result = self._runner.execute(plan)
        return result.completed, result.outputs
