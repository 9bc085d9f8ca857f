"""The core under a load that does not fit its pool, on virtual time: what is computed twice, and how long all takes.

The set-up of `64 requests of 128 + 400 tokens, 700 blocks of 16`: all come at once and want three times the pool. No
contents are needed, so this drives the core alone; a step takes what a CPU takes for its shape.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core.decisions import Decision, RequestFinished, RequestPreempted, StepPlanned
from engine.core.events import FinishFlag, RequestArrived, StepCompleted
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.step_time import StepShape, shape_of

NUM_REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS = 64, 128, 400
POOL: dict[str, Any] = {
    "block_size": 16,
    "num_kv_blocks": 700,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "max_model_len": 2048,
    "enable_prefix_caching": False,
}
MS = 1_000_000


def cpu_step_ns(shape: StepShape) -> int:
    """Two cores and a model of 135 M parameters: 5 ms a step, 0.9 ms a decode row, 0.5 ms a prefill token."""
    return 5 * MS + shape.num_decodes * 900_000 + shape.decode_context * 400 + shape.prefill_tokens * 500_000


@dataclass
class Outcome:
    """
    num_tokens      computed; num_needed of them would have been enough
    num_preempted   preemptions by request
    span_ns         virtual time from the first arrival to the last end
    """

    num_tokens: int = 0
    num_needed: int = 0
    num_steps: int = 0
    span_ns: int = 0
    num_output_tokens: int = 0
    num_preempted: dict[int, int] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def extra_share(self) -> float:
        return self.num_tokens / self.num_needed - 1

    @property
    def most_preempted(self) -> int:
        return max(self.num_preempted.values(), default=0)

    @property
    def goodput(self) -> float:
        """Output tokens of requests that ended, per virtual second."""
        return self.num_output_tokens * 1e9 / self.span_ns


@dataclass(frozen=True)
class Arrival:
    at_ns: int
    prompt: int
    output: int
    max_output: int
    tenant: str = "t"
    priority: int = 0


def all_at_once() -> list[Arrival]:
    return [Arrival(0, PROMPT_TOKENS, OUTPUT_TOKENS, OUTPUT_TOKENS) for _ in range(NUM_REQUESTS)]


def run(limits: Limits, arrivals: Sequence[Arrival], step_ns: Callable[[StepShape], int] = cpu_step_ns) -> Outcome:
    """Serve `arrivals`, which are in order of time, to their ends."""
    served = _Served(limits, arrivals, step_ns)
    while served.go_on():
        pass
    return served.outcome


class _Served:
    def __init__(self, limits: Limits, arrivals: Sequence[Arrival], step_ns: Callable[[StepShape], int]) -> None:
        self.outcome = Outcome()
        self._core = Core(limits)
        self._arrivals = arrivals
        self._step_ns = step_ns
        self._num_arrived = 0
        self._now_ns = 0
        self._plan: StepPlanned | None = None

    def go_on(self) -> bool:
        """One step, or the time until somebody comes; False when all is done."""
        if self._plan is None:
            if self._num_arrived == len(self._arrivals):
                return False
            self._arrive_until(self._arrivals[self._num_arrived].at_ns)
            return True
        took_ns = self._step_ns(shape_of(self._plan.rows))
        self._arrive_until(self._now_ns + took_ns)
        plan, self._plan = self._plan, None
        self._take(self._core.handle(self._completed(plan, took_ns), self._now_ns))
        return True

    def _arrive_until(self, end_ns: int) -> None:
        while self._num_arrived < len(self._arrivals) and self._arrivals[self._num_arrived].at_ns <= end_ns:
            arrival = self._arrivals[self._num_arrived]
            self._now_ns = max(self._now_ns, arrival.at_ns)
            self._take(self._core.handle(_event(self._num_arrived, arrival), self._now_ns))
            self._num_arrived += 1
        self._now_ns = end_ns

    def _completed(self, plan: StepPlanned, took_ns: int) -> StepCompleted:
        """What an executor would tell: who emitted, who stopped, which blocks beyond the prompt were filled."""
        size = self._core.limits.block_size
        emitted: list[tuple[int, str, int, int]] = []
        filled: list[tuple[int, bytes]] = []
        for number, start, count in plan.rows:
            self.outcome.num_tokens += count
            request, arrival = self._core.requests[number], self._arrivals[number]
            first = max(start // size, arrival.prompt // size)
            filled += [(number, b"%d:%d" % (number, index)) for index in range(first, (start + count) // size)]
            if start + count == request.num_tokens:
                stops = request.num_output_tokens + 1 >= arrival.output
                emitted.append((number, FinishFlag.STOP if stops else FinishFlag.NONE, 0, 0))
        return StepCompleted(plan.step, tuple(emitted), tuple(filled), took_ns, 0)

    def _take(self, decisions: Sequence[Decision]) -> None:
        outcome = self.outcome
        for decision in decisions:
            if isinstance(decision, StepPlanned):
                self._plan = decision
                outcome.num_steps += 1
            elif isinstance(decision, RequestPreempted):
                outcome.num_preempted[decision.request] = outcome.num_preempted.get(decision.request, 0) + 1
            elif isinstance(decision, RequestFinished):
                outcome.num_needed += decision.num_prompt_tokens + decision.num_output_tokens - 1
                outcome.num_output_tokens += decision.num_output_tokens
                outcome.span_ns = self._now_ns
            if not isinstance(decision, StepPlanned):
                outcome.decisions.append(decision)


def _event(number: int, arrival: Arrival) -> RequestArrived:
    digests = tuple([b"%d:%d" % (number, index) for index in range(arrival.prompt // POOL["block_size"])])
    return RequestArrived(
        number,
        f"r{number}",
        arrival.tenant,
        arrival.priority,
        arrival.at_ns,
        arrival.prompt,
        arrival.max_output,
        digests,
        SamplingParams(),
    )
