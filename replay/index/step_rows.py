"""One row for each step: what it was planned with, and how long it took. It must not know requests."""

from typing import Any

from engine.core.decisions import RequestAdmitted, StepPlanned
from engine.core.events import StepCompleted
from replay.index.moment import Moment
from replay.index.sink import Sink


class StepRows:
    """
    planned_sequence   of the step under way; None when there is none
    """

    def __init__(self, moment: Moment, sink: Sink) -> None:
        self.planned_sequence: int | None = None
        self._moment = moment
        self._sink = sink
        self._budget = 0
        self._num_hits = 0
        self._num_evicted = 0
        self._plan: tuple[Any, ...] = ()
        self._planned_ns = 0
        self._step = -1

    def begin_life(self, budget: int) -> None:
        self.tell_open()
        self._budget, self.planned_sequence = budget, None
        self._num_hits = self._num_evicted = 0

    def on_admitted(self, decision: RequestAdmitted) -> None:
        self._num_hits += decision.num_hit_blocks
        self._num_evicted += len(decision.evicted_blocks)

    def on_planned(self, plan: StepPlanned, sequence: int, num_prefill_tokens: int, num_decodes: int) -> None:
        """Its turn has come; `sequence`: of the entry that planned it, this one or one before."""
        self.planned_sequence, self._planned_ns = sequence, self._moment.now_ns
        self._step = plan.step
        num_evicted = self._num_evicted + len(plan.evicted_blocks)
        self._plan = (
            *(len(plan.rows), num_prefill_tokens, num_decodes, self._budget, plan.token_budget_left),
            *(plan.num_running, plan.num_waiting, plan.num_blocks_free, self._num_hits, num_evicted),
            self._moment.policy,
        )
        self._num_hits = self._num_evicted = 0

    def on_result(self, completed: StepCompleted | None) -> None:
        """None: it failed."""
        if self.planned_sequence is None:
            return
        now_ns = self._moment.now_ns
        times: tuple[int | None, ...] = (None, None, None, None)
        if completed is not None:
            in_model_ns = completed.execute_ns + completed.sample_ns
            beside_ns = now_ns - self._planned_ns - in_model_ns
            times = (completed.execute_ns, completed.sample_ns, completed.swap_ns, beside_ns)
        self._tell(self._moment.sequence, now_ns, times)
        self.planned_sequence = None

    def tell_open(self) -> None:
        if self.planned_sequence is not None:
            self._tell(None, None, (None, None, None, None))

    def _tell(self, completed_sequence: int | None, completed_ns: int | None, times: tuple[int | None, ...]) -> None:
        place = (self._moment.life, self._step, self.planned_sequence, completed_sequence)
        self._sink.add("steps", *place, self._planned_ns, completed_ns, *times, *self._plan)
