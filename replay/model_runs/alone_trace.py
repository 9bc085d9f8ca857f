"""What a request computes alone, operation by operation: the measure of what it computed in company."""

from engine.core.contents import RequestContents
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.execution.interface import Runner, StepResult
from replay.model_runs.alone import run_alone
from replay.model_runs.tracing import Digests, StepSeen, TracedRunner


class AloneTrace:
    """What a request computes alone, by token position.

    operations   position → u64 [places]
    kv           position → u64 [layers]
    """

    def __init__(self, arrived: RequestArrived, contents: RequestContents, limits: Limits, runner: Runner) -> None:
        self.operations: dict[int, Digests] = {}
        self.kv: dict[int, Digests] = {}
        self._traced = TracedRunner(runner, self._seen)
        self._tokens = run_alone(arrived, contents, limits, self._traced)

    def run(self, num_tokens: int) -> None:
        """Up to the output token of this number, or its end."""
        try:
            for _token in zip(range(num_tokens), self._tokens, strict=False):
                pass
        finally:
            self._tokens.close()
            self._traced.detach()

    def _seen(self, seen: StepSeen, result: StepResult) -> None:
        kv = self._traced.kv_digests(seen.slots)
        for row, position in enumerate(seen.positions.tolist()):
            self.operations[position] = seen.digests[row]
            self.kv[position] = kv[row]
