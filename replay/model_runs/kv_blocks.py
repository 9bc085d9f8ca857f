"""Which block of a request holds other keys and values alone than in company: the first of them went wrong first. And
whether its prompt's log-probabilities are the same.

It stands between who runs the request and the runner, and looks at what each step has filled.
"""

from collections.abc import Mapping
from typing import NamedTuple

from engine.core.decisions import StepPlanned
from engine.execution.interface import Runner, StepResult
from engine.execution.passing_on import PassingOn


class OtherBlock(NamedTuple):
    """block_index: place in the request's block table; digests as recorded and alone."""

    block_index: int
    expected: int
    got: int


class ComparingRunner(PassingOn):
    """`runner`, for one request at a time.

    expected   digests of the blocks that the request filled, by place in its block table, as recorded
    first      the first that differs; None: none did, or digests were not kept on both sides
    prompt     digest of what it is told of its prompt; None before that
    """

    def __init__(self, runner: Runner, expected: Mapping[int, int]) -> None:
        super().__init__(runner)
        self.prompt: tuple[int, int, int] | None = None
        self._expected = expected
        self.first: OtherBlock | None = None

    def execute(self, plan: StepPlanned) -> StepResult:
        result = super().execute(plan)
        for _request, index, digest in result.completed.kv_digests:
            expected = self._expected.get(index, digest)
            if self.first is None and expected != digest:
                self.first = OtherBlock(index, expected, digest)
        for told in result.completed.prompt_logprobs:
            self.prompt = told
        return result
