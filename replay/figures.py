"""A recording's traffic in figures, for people: counts, latencies, reasons for waiting.

All of it is the reading of `recorder/timeline.py`, which /metrics uses live; only quantiles are taken here, exactly,
from the spans.
"""

from collections.abc import Sequence
from typing import Any

from engine.core.limits import Limits
from recorder.request_span import RequestSpan
from recorder.spans.request_values import request_values as request_values
from recorder.timeline import Timeline
from recorder.totals import Totals
from replay.lives import Run

REQUEST_HEADING = (
    f"{'request':>7} {'id':<24} {'prompt':>6} {'output':>6} {'cached':>6} {'preempted':>9} "
    f"{'queue ms':>10} {'ttft ms':>10} {'tpot ms':>9} {'e2e ms':>11} outcome"
)
_ID_COLUMNS = 24


def read_timeline(run: Run) -> Timeline:
    """Every entry of every life, with each request's span kept."""
    timeline = Timeline(keep_spans=True)
    for life in run.lives:
        timeline.begin_engine(Limits.from_dict(life.header.limits))
        for entry in life.entries():
            timeline.apply(entry)
    return timeline


def figures(timeline: Timeline) -> dict[str, Any]:
    """Totals and quantiles by name; times in milliseconds, None where nothing was observed."""
    totals = timeline.totals
    spans = list(timeline.spans.values())
    queries = totals.prefix_cache_queries
    return {
        "arrived": totals.num_requests + sum(totals.rejected.values()),
        "finished": _by_count(totals.finished),
        "rejected": _by_count(totals.rejected),
        "cancels": _by_count(totals.cancels),
        "live_at_the_end": len(timeline.live),
        "steps": totals.num_steps,
        "failed_steps": totals.num_failed_steps,
        "prompt_tokens": totals.prompt_tokens,
        "generation_tokens": totals.generation_tokens,
        "tokens_emitted_again": totals.num_tokens_emitted_again,
        "handovers": totals.num_handovers,
        "preemptions": totals.num_preemptions,
        "tokens_lost_to_preemption": totals.num_tokens_lost,
        "swaps": totals.num_swaps,
        "swapped_out_blocks": totals.num_swapped_out_blocks,
        "swapped_in_blocks": totals.num_swapped_in_blocks,
        "swap_ms": totals.swap_ns / 1e6,
        "cascades": totals.num_cascades,
        "longest_cascade": totals.longest_cascade,
        "thrashings": totals.num_thrashings,
        "kv_mismatches": totals.num_kv_mismatches,
        "audits": _by_count(totals.audits),
        "audited_tokens": totals.num_audited_tokens,
        "evicted_blocks": totals.num_evicted_blocks,
        "prefix_cache_hit_share": totals.prefix_cache_hits / queries if queries else None,
        "deferrals": _by_count(totals.deferrals),
        "gap_entries": timeline.num_gap_entries,
        "ttft_ms": quantiles([span.ttft_ns for span in spans]),
        "itl_ms": quantiles([gap for span in spans for gap in span.itl_ns or ()]),
        "e2e_ms": quantiles([span.e2e_ns for span in spans if span.first_token_ns]),
        "ms_per_step": _ms_per_step(totals),
    }


def _ms_per_step(totals: Totals) -> dict[str, float] | None:
    """Where a step's time went on average; `rest` is deciding, recording, passing on, and messages taken meanwhile."""
    if not totals.num_steps:
        return None
    rest_ns = totals.step_ns - totals.execute_ns - totals.sample_ns
    parts = {"execute": totals.execute_ns, "sample": totals.sample_ns, "rest": rest_ns}
    return {name: sum_ns / totals.num_steps / 1e6 for name, sum_ns in parts.items()}


def _by_count(counts: dict[str, int]) -> dict[str, int]:
    """Most frequent first, so that the first reasons are the ones that matter."""
    return {str(name): count for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))}


def quantiles(nanoseconds: Sequence[float | None], ranks: Sequence[int] = (50, 99)) -> dict[str, float] | None:
    """p50, p99 … in milliseconds by nearest rank: a value that did occur. None of nothing."""
    values = sorted(value for value in nanoseconds if value is not None)
    if not values:
        return None
    return {f"p{rank}": values[max(0, -(-len(values) * rank // 100) - 1)] / 1e6 for rank in ranks}


def request_line(span: RequestSpan) -> str:
    """One request as a row under REQUEST_HEADING."""
    name = span.request_id if len(span.request_id) <= _ID_COLUMNS else span.request_id[: _ID_COLUMNS - 1] + "…"
    outcome = span.outcome or f"({span.phase})"
    return (
        f"{span.request:>7} {name:<{_ID_COLUMNS}} {span.num_prompt_tokens:>6} {span.num_output_tokens:>6} "
        f"{max(0, span.num_cached_tokens):>6} {span.num_preemptions:>9} {_column(span.queue_ns, 10)} "
        f"{_column(span.ttft_ns, 10)} {_column(span.tpot_ns, 9)} {_column(span.e2e_ns, 11)} {outcome}"
    )


def _column(nanoseconds: float | None, width: int) -> str:
    return f"{'-':>{width}}" if nanoseconds is None else f"{nanoseconds / 1e6:>{width}.2f}"
