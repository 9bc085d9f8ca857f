"""A run of any origin in the figures that are compared: what its requests experienced, in all and by tenant.

Recorded, predicted and executed runs are read by the same code, so a difference is one of the runs. It knows entries.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.core.decisions import StepPlanned
from engine.core.events import RequestArrived, StepCompleted
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.in_turn import InTurn
from recorder.request_span import RequestSpan
from recorder.timeline import Timeline
from replay.done import done_by
from replay.figures import quantiles
from replay.simulate.arrivals import NS_PER_S, Arrival
from replay.simulate.outcome import fairness_at_last_arrival, is_good
from replay.what_if.recorded_load import Answer

RANKS = (50, 90, 99)


class RunOutcome:
    """`begin` each life, `read` its entries; `values` when all is over.

    targets   by whose TTFT and ITL targets and prices every run is judged alike
    """

    def __init__(self, targets: Limits) -> None:
        self._targets = targets
        self._timeline = Timeline(keep_spans=True, keep_histories=False)
        self._arrived: list[RequestArrived] = []
        self._plan: StepPlanned | None = None
        self._in_turn = InTurn()
        self._once_computed: dict[int, int] = {}
        self._num_computed = self._num_recomputed = 0
        self.done: Counter[str] = Counter()  # decision → how many

    def begin(self, limits: Limits) -> None:
        self._timeline.begin_engine(limits)
        self._in_turn.forget()
        self._plan = None

    def read(self, entry: Entry) -> None:
        self._timeline.apply(entry)
        entry = self._in_turn(entry)
        if isinstance(entry.event, RequestArrived):
            self._arrived.append(entry.event)
        elif isinstance(entry.event, StepCompleted) and self._plan is not None:
            self._count(self._plan)
        for decision in entry.decisions:
            if isinstance(decision, StepPlanned):
                self._plan = decision
            if done_by(decision) is not None:
                self.done[type(decision).__name__] += 1

    def _count(self, plan: StepPlanned) -> None:
        once = self._once_computed
        for request, start, count in plan.rows:
            before, end = once.get(request, 0), start + count
            self._num_computed += count
            if start < before:
                self._num_recomputed += min(end, before) - start
            if end > before:
                once[request] = end

    def values(self, answers: dict[int, Answer]) -> dict[str, Any]:
        """By name; times in milliseconds, None where nothing was observed.

        answers              what was asked for, by request: for fairness
        goodput_rps          requests a second that came to their own ends within the targets; good_share of all
        extra_tokens_share   computed tokens that had been computed before, in relation to those that had not
        fairness             Jain's index at the last arrival; None with a single tenant
        """
        timeline, totals = self._timeline, self._timeline.totals
        spans = list(timeline.spans.values())
        seconds = ((timeline.last_ns or 0) - (timeline.first_ns or 0)) / NS_PER_S
        num_once = self._num_computed - self._num_recomputed
        queries = totals.prefix_cache_queries
        return {
            "seconds": seconds,
            "finished": {str(reason): count for reason, count in sorted(totals.finished.items())},
            "rejected": {str(reason): count for reason, count in sorted(totals.rejected.items())},
            **self._latencies(spans),
            "goodput_rps": sum(is_good(span, self._targets) for span in spans) / seconds if seconds else None,
            "steps": totals.num_steps,
            "output_tokens": totals.generation_tokens,
            "preemptions": totals.num_preemptions,
            "extra_tokens_share": self._num_recomputed / num_once if num_once else None,
            "cache_hit_share": totals.prefix_cache_hits / queries if queries else None,
            "fairness": fairness_at_last_arrival(self._arrivals(answers), spans, self._targets) if spans else None,
            "tenants": self._tenants(spans),
        }

    def _latencies(self, spans: Sequence[RequestSpan]) -> dict[str, Any]:
        return {
            "ttft_ms": quantiles([span.ttft_ns for span in spans], RANKS),
            "itl_ms": quantiles([gap for span in spans for gap in span.itl_ns or ()], RANKS),
            "e2e_ms": quantiles([span.e2e_ns for span in spans if span.first_token_ns is not None], RANKS),
            "good_share": sum(is_good(span, self._targets) for span in spans) / len(spans) if spans else None,
        }

    def _tenants(self, spans: Sequence[RequestSpan]) -> dict[str, Any]:
        by_tenant: dict[str, list[RequestSpan]] = {}
        for span in spans:
            by_tenant.setdefault(span.tenant, []).append(span)
        return {
            tenant: {
                "requests": len(own),
                **self._latencies(own),
                "preemptions": sum(span.num_preemptions for span in own),
            }
            for tenant, own in sorted(by_tenant.items())
        }

    def _arrivals(self, answers: dict[int, Answer]) -> list[Arrival]:
        return [
            Arrival(it.arrival_ns, it.num_prompt_tokens, answers[it.request].num_tokens, it.tenant)
            for it in sorted(self._arrived, key=lambda event: event.arrival_ns)
            if it.request in answers
        ]
