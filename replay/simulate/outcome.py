"""A simulation in figures. Times are the reading of `recorder/timeline.py`; what it cannot tell is counted here.

It must not know how the entries came about, but for the tokens that the executor saw computed again.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.core.decisions import FinishReason, RequestAdmitted
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.request_span import RequestSpan
from recorder.timeline import Timeline
from replay.figures import figures
from replay.simulate.arrivals import NS_PER_S, Arrival
from replay.simulate.fairness import fairness

_OWN_ENDS = (FinishReason.STOP, FinishReason.LENGTH)
_NS_PER_MS = 1_000_000


class Outcome:
    """Reads the entries of one run; `values` when it is over."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._timeline = Timeline(limits, keep_spans=True, keep_histories=False)
        self._worst_wait = 0

    def read(self, entry: Entry) -> None:
        self._timeline.apply(entry)
        for decision in entry.decisions:
            if type(decision) is RequestAdmitted and decision.num_passes > self._worst_wait:
                self._worst_wait = decision.num_passes

    def values(self, arrivals: Sequence[Arrival], num_tokens: int, num_recomputed: int) -> dict[str, Any]:
        """By name; times in milliseconds of virtual time, None where nothing was observed.

        goodput_rps             requests a second that came to their own ends with TTFT and TPOT within the limits'
                                targets; good_share of all that arrived
        extra_tokens_share      computed tokens that had been computed before, in relation to those that had not
        most_preemptions        of one request
        worst_wait_passes       planning passes between being queued and being admitted
        fairness                Jain's index at the last arrival, when the load is at its highest: see `fairness.py`
        """
        timeline = self._timeline
        spans = list(timeline.spans.values())
        seconds = ((timeline.last_ns or 0) - (timeline.first_ns or 0)) / NS_PER_S
        good = [span for span in spans if is_good(span, self._limits)]
        return {
            "virtual_seconds": seconds,
            **figures(timeline),
            "goodput_rps": len(good) / seconds if seconds else None,
            "good_share": len(good) / len(spans) if spans else None,
            "output_tokens_per_s": timeline.totals.generation_tokens / seconds if seconds else None,
            "computed_tokens": num_tokens,
            "extra_tokens_share": num_recomputed / (num_tokens - num_recomputed) if num_tokens else None,
            "most_preemptions": max([span.num_preemptions for span in spans], default=0),
            "worst_wait_passes": self._worst_wait,
            "fairness": fairness_at_last_arrival(arrivals, spans, self._limits),
        }


def is_good(span: RequestSpan, limits: Limits) -> bool:
    """It came to its own end, with TTFT and TPOT within the limits' targets."""
    if span.outcome not in _OWN_ENDS or span.ttft_ns is None or span.ttft_ns > limits.ttft_target_ms * _NS_PER_MS:
        return False
    return span.tpot_ns is None or span.tpot_ns <= limits.itl_target_ms * _NS_PER_MS


def fairness_at_last_arrival(arrivals: Sequence[Arrival], spans: Sequence[RequestSpan], limits: Limits) -> float | None:
    """Of what each tenant was served by then, of what it asked for in all; None with a single tenant."""
    prompt_price, output_price = limits.prefill_token_price, limits.decode_token_price
    asked: Counter[str] = Counter()
    served: Counter[str] = Counter()
    for arrival in arrivals:
        asked[arrival.tenant] += prompt_price * arrival.num_prompt_tokens + output_price * arrival.num_output_tokens
    if len(asked) < 2:
        return None
    last_ns = arrivals[-1].at_ns
    for span in spans:
        num_emitted = bisect_right(span.token_times_ns or (), last_ns)
        if num_emitted:
            served[span.tenant] += prompt_price * span.num_prompt_tokens + output_price * num_emitted
    return fairness(asked, served, dict(limits.tenant_weights))
