"""The timeline under our own names, for what nobody else has: decisions by reason, waiting by cause, thrashing,
starvation, cascades, swaps, audits, and where a step's time went.
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from prometheus_client.core import Metric

from engine.core.decisions import (
    Decision,
    DeferReason,
    FinishReason,
    PreemptReason,
    RejectReason,
    RequestDeferred,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StarvationCause,
    StarvationSeen,
)
from engine.core.events import AuditResult
from recorder.metrics.families import Families, by_reason
from recorder.timeline import Timeline
from recorder.totals import Totals


def own_families(timeline: Timeline, make: Families) -> Iterator[Metric]:
    yield from _gauges(timeline, make)
    yield from _requests(timeline.totals, make)
    yield from _preemptions(timeline.totals, make)
    yield from _cache(timeline.totals, make)
    yield from _steps(timeline.totals, make)


def _gauges(timeline: Timeline, make: Families) -> Iterator[Metric]:
    yield make.gauge("reprise:kv_blocks", "KV blocks in the pool.", timeline.num_kv_blocks)
    yield make.gauge("reprise:kv_blocks_free", "KV blocks free or evictable.", timeline.num_blocks_free)
    yield make.gauge("reprise:thrashing", "1 while too much is computed again.", float(timeline.is_thrashing))
    yield make.gauge("reprise:watermark_blocks", "KV blocks an admission leaves free.", timeline.watermark_blocks)
    yield make.gauge("reprise:host_blocks", "KV blocks in the host pool.", timeline.num_host_blocks)
    used = timeline.num_host_blocks_used
    yield make.gauge("reprise:host_blocks_used", "Host blocks that swapped requests have.", used)
    longest = timeline.totals.longest_cascade
    yield make.gauge("reprise:longest_cascade", "Preemptions of the longest chain so far.", longest)


def _requests(totals: Totals, make: Families) -> Iterator[Metric]:
    yield make.counter("reprise:requests", "Requests taken in.", totals.num_requests)
    finished = by_reason(FinishReason, totals.finished)
    yield make.counter("reprise:requests_finished", "Requests that ended, by the engine's reason.", finished, "reason")
    labels = ("decision", "reason")
    yield make.counter_by("reprise:decisions", "The core's decisions, by reason.", labels, _decisions(totals))
    deferrals = by_reason(DeferReason, totals.deferrals)
    yield make.counter("reprise:deferrals", "Explanations of waiting, by reason.", deferrals, "reason")
    seconds = {reason: nanoseconds / 1e9 for reason, nanoseconds in totals.deferred_ns.items()}
    waited = by_reason(DeferReason, seconds)
    yield make.counter("reprise:deferred_seconds", "Time that ended requests waited, by why.", waited, "reason")
    starved = by_reason(StarvationCause, totals.starvations)
    yield make.counter("reprise:starvations", "Requests protected from then on, by why.", starved, "cause")
    audits = by_reason(AuditResult, totals.audits)
    yield make.counter("reprise:audit_requests", "Requests computed again at idle, by result.", audits, "result")
    yield make.counter("reprise:audit_tokens", "Tokens compared in these.", totals.num_audited_tokens)


def _decisions(totals: Totals) -> dict[tuple[str, ...], float]:
    """Those with reasons by each of them, the others under the reason ""."""
    by_kind: dict[type[Decision], tuple[type[StrEnum], Counter[str]]] = {
        RequestRejected: (RejectReason, totals.rejected),
        RequestDeferred: (DeferReason, totals.deferrals),
        RequestPreempted: (PreemptReason, totals.preemptions),
        RequestFinished: (FinishReason, totals.finished),
        StarvationSeen: (StarvationCause, totals.starvations),
    }
    counts: dict[tuple[str, ...], float] = {
        (kind.__name__, reason): count
        for kind, (reasons, counter) in by_kind.items()
        for reason, count in by_reason(reasons, counter).items()
    }
    without = {kind.__name__: count for kind, count in totals.num_decisions.items() if kind not in by_kind}
    return counts | {(name, ""): count for name, count in without.items()}


def _preemptions(totals: Totals, make: Families) -> Iterator[Metric]:
    yield make.counter("reprise:tokens_lost", "Computed tokens given up by preemptions.", totals.num_tokens_lost)
    yield make.counter("reprise:swaps", "Preemptions by swap.", totals.num_swaps)
    copied = {"out": totals.num_swapped_out_blocks, "in": totals.num_swapped_in_blocks}
    yield make.counter("reprise:swapped_blocks", "KV blocks copied to and from the host.", copied, "direction")
    yield make.counter("reprise:swap_seconds", "Time spent on these copies.", totals.swap_ns / 1e9)
    yield make.counter("reprise:cascades", "Chains of preemptions that caused one another.", totals.num_cascades)
    led = "Preemptions that led to each preemption, itself included."
    yield make.histogram("reprise:preemption_chain_length", led, totals.preemption_chain_length)
    yield make.counter("reprise:thrashings", "Times that thrashing began.", totals.num_thrashings)


def _cache(totals: Totals, make: Families) -> Iterator[Metric]:
    yield make.counter("reprise:evicted_blocks", "Cached blocks given up for new ones.", totals.num_evicted_blocks)
    wrong = "Times that a KV block did not hold what was written to it."
    yield make.counter("reprise:kv_mismatch", wrong, totals.num_kv_mismatches)


def _steps(totals: Totals, make: Families) -> Iterator[Metric]:
    yield make.counter("reprise:steps", "Steps executed.", totals.num_steps)
    yield make.counter("reprise:failed_steps", "Steps that raised.", totals.num_failed_steps)
    yield make.counter("reprise:execute_seconds", "Time in the model.", totals.execute_ns / 1e9)
    yield make.counter("reprise:sample_seconds", "Time in the sampler.", totals.sample_ns / 1e9)
    yield make.counter("reprise:step_seconds", "Time from planning steps to results.", totals.step_ns / 1e9)
    phases = {
        "swap": totals.step_swap_seconds,
        "execute": totals.step_execute_seconds,
        "sample": totals.step_sample_seconds,
        "rest": totals.step_rest_seconds,
    }
    yield make.histogram("reprise:step_phase_seconds", "Where a step's time went.", phases, "phase")
    again = "Tokens that two engines recorded, equal: the first died before it had delivered them."
    yield make.counter("reprise:tokens_emitted_again", again, totals.num_tokens_emitted_again)
