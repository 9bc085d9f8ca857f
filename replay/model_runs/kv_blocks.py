"""Which block of a request holds other keys and values alone than in company: the first of them went wrong first. And
whether its prompt's log-probabilities are the same.

It stands between who runs the request and the runner, and looks at what each step has filled.
"""

from collections.abc import Mapping
from typing import NamedTuple

from engine.core.contents import RequestContents
from engine.core.decisions import Decision, StepPlanned
from engine.core.sampling_params import SamplingParams
from engine.execution.interface import Runner, StepResult


class OtherBlock(NamedTuple):
    """block_index: place in the request's block table; digests as recorded and alone."""

    block_index: int
    expected: int
    got: int


class ComparingRunner:
    """`runner`, for one request at a time.

    expected   digests of the blocks that the request filled, by place in its block table, as recorded
    first      the first that differs; None: none did, or digests were not kept on both sides
    prompt     digest of what it is told of its prompt; None before that
    """

    def __init__(self, runner: Runner, expected: Mapping[int, int]) -> None:
        self.prompt: tuple[int, int, int] | None = None
        self._runner = runner
        self._expected = expected
        self.first: OtherBlock | None = None

    def prompt_digests(self, contents: RequestContents) -> tuple[bytes, ...]:
        return self._runner.prompt_digests(contents)

    def add_request(
        self, request: int, sampling: SamplingParams, contents: RequestContents, digests: tuple[bytes, ...] = ()
    ) -> None:
        self._runner.add_request(request, sampling, contents, digests)

    def carry_out(self, decision: Decision) -> None:
        self._runner.carry_out(decision)

    def execute(self, plan: StepPlanned) -> StepResult:
        result = self._runner.execute(plan)
        for _request, index, digest in result.completed.kv_digests:
            expected = self._expected.get(index, digest)
            if self.first is None and expected != digest:
                self.first = OtherBlock(index, expected, digest)
        for told in result.completed.prompt_logprobs:
            self.prompt = told
        return result
