"""Spans, gauges and totals from entries made by hand: every figure below was worked out on paper."""

from dataclasses import replace
from typing import Any

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry, RecordingGap
from recorder.request_span import Phase
from recorder.timeline import Timeline
from tests.recorder.samples import step_entry

LIMITS = Limits(block_size=4, num_kv_blocks=10)
MS = 1_000_000


class Stream:
    """Entries numbered and timed in milliseconds, applied as they are made."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._sequence = 0

    def at(self, milliseconds: int, event: Any, *decisions: Any) -> None:
        self.timeline.apply(Entry(self._sequence, milliseconds * MS, event, decisions))
        self._sequence += 1


def arrived(request: int, milliseconds: int, num_prompt_tokens: int = 8) -> e.RequestArrived:
    return e.RequestArrived(
        request, f"r{request}", "t", 0, milliseconds * MS, num_prompt_tokens, 20, (), SamplingParams()
    )


def completed(step: int, *requests: int) -> e.StepCompleted:
    return e.StepCompleted(step, tuple([(request, "", 1, 2) for request in requests]), (), 3 * MS, MS)


def planned(step: int, *rows: tuple[int, int, int], free: int, running: int = 1, waiting: int = 0) -> d.StepPlanned:
    return d.StepPlanned(step, rows, (), (), running, waiting, free, 0)


def one_life(timeline: Timeline) -> None:
    """Request 1: read at 10 ms, waits for blocks, prefilled in two chunks, preempted after 2 tokens, ends with 3."""
    stream = Stream(timeline)
    stream.at(12, arrived(1, 10), d.RequestDeferred(1, d.DeferReason.MAX_NUM_SEQS, 2, 10, -1, 0))
    stream.at(20, completed(0), d.RequestDeferred(1, d.DeferReason.OUT_OF_BLOCKS, 2, 1, -1, 1))
    stream.at(30, completed(1), d.RequestAdmitted(1, (0, 1), 1, (9,), 6, 4), planned(2, (1, 4, 2), free=8))
    stream.at(40, completed(2), planned(3, (1, 6, 2), free=8))
    stream.at(55, completed(3, 1), d.TokensEmitted(3, ((1, 1),)), planned(4, (1, 8, 1), free=7))
    stream.at(
        65,
        completed(4, 1),
        d.TokensEmitted(4, ((1, 2),)),
        d.RequestPreempted(1, 2, d.PreemptReason.OUT_OF_BLOCKS, d.PreemptMode.RECOMPUTE, 3, 9, 0),
        d.RequestDeferred(1, d.DeferReason.PREEMPTION, 3, 10, -1, 0),
    )
    stream.at(80, completed(5), d.RequestAdmitted(1, (0, 1, 2), 0, (), 10, 2), planned(6, (1, 0, 10), free=7))
    stream.at(
        95,
        completed(6, 1),
        d.TokensEmitted(6, ((1, 3),)),
        d.RequestFinished(1, d.FinishReason.LENGTH, 8, 3, 4, 1, 3),
    )


def test_the_spans_of_a_request_are_as_defined() -> None:
    timeline = Timeline(LIMITS, keep_spans=True)
    one_life(timeline)
    span = timeline.spans[1]
    assert (span.phase, span.outcome) == (Phase.ENDED, "length")
    assert span.ttft_ns == 45 * MS
    assert span.itl_ns == [10 * MS, 30 * MS]
    assert span.tpot_ns == 20 * MS
    assert span.queue_ns == 20 * MS
    assert span.prefill_ns == 25 * MS
    assert span.decode_ns == 40 * MS
    assert span.inference_ns == 65 * MS
    assert span.e2e_ns == 85 * MS
    assert (span.num_prompt_tokens, span.num_cached_tokens, span.num_output_tokens) == (8, 4, 3)
    assert (span.num_preemptions, span.num_prefill_chunks) == (1, 3)
    assert span.deferred_passes == {"max_num_seqs": 1, "out_of_blocks": 3, "preemption": 2}
    assert span.deferred_ns == {"max_num_seqs": 8 * MS, "out_of_blocks": 10 * MS, "preemption": 15 * MS}
    assert span.token_times_ns == [55 * MS, 65 * MS, 95 * MS]
    assert span.chunks == [(2, 4, 2), (3, 6, 2), (4, 8, 1), (6, 0, 10)]
    assert span.history is not None
    assert [type(record).__name__ for _, record in span.history] == [
        *("RequestArrived", "RequestDeferred", "RequestDeferred", "RequestAdmitted"),
        *("RequestPreempted", "RequestDeferred", "RequestAdmitted", "RequestFinished"),
    ]


def test_totals_are_the_sums_of_the_spans() -> None:
    timeline = Timeline(LIMITS)
    one_life(timeline)
    totals = timeline.totals
    assert (totals.num_requests, totals.finished, totals.rejected) == (1, {"length": 1}, {})
    assert (totals.prompt_tokens, totals.generation_tokens) == (8, 3)
    assert (totals.prefix_cache_queries, totals.prefix_cache_hits) == (8, 4)
    assert (totals.num_preemptions, totals.num_tokens_lost, totals.num_evicted_blocks) == (1, 9, 1)
    assert totals.deferrals == {"max_num_seqs": 1, "out_of_blocks": 1, "preemption": 1}
    assert (totals.num_steps, totals.execute_ns, totals.sample_ns, totals.step_ns) == (7, 21 * MS, 7 * MS, 62 * MS)
    sums = {
        "time_to_first_token_seconds": 0.045,
        "inter_token_latency_seconds": 0.04,
        "request_time_per_output_token_seconds": 0.02,
        "request_queue_time_seconds": 0.02,
        "request_prefill_time_seconds": 0.025,
        "request_decode_time_seconds": 0.04,
        "request_inference_time_seconds": 0.065,
        "e2e_request_latency_seconds": 0.085,
        "request_prompt_tokens": 8,
        "request_generation_tokens": 3,
        "request_params_max_tokens": 20,
        "request_num_preemptions": 1,
    }
    assert {name: getattr(totals, name).sum for name in sums} == pytest.approx(sums)
    counts = {name: getattr(totals, name).count for name in sums}
    assert counts == {**dict.fromkeys(sums, 1), "inter_token_latency_seconds": 2}


def test_gauges_follow_a_request_and_return_to_zero() -> None:
    timeline = Timeline(LIMITS)
    stream = Stream(timeline)
    assert gauges(timeline) == (0, 0, 10, 0.0)
    stream.at(1, arrived(1, 0), d.RequestAdmitted(1, (0, 1), 0, (), 10, 0), planned(0, (1, 0, 8), free=8))
    assert gauges(timeline) == (1, 0, 8, 0.2)
    stream.at(2, arrived(2, 1))
    assert gauges(timeline) == (1, 1, 8, 0.2)
    stream.at(
        3, completed(0, 1), d.RequestDeferred(2, d.DeferReason.MAX_NUM_SEQS, 2, 8, -1, 0), planned(1, (1, 8, 1), free=7)
    )
    assert timeline.waiting_by_reason["max_num_seqs"] == 1
    stream.at(
        4, e.RequestCancelled(2, e.CancelCause.CLIENT), d.RequestFinished(2, d.FinishReason.CANCELLED, 8, 0, 0, 0, 0)
    )
    assert gauges(timeline) == (1, 0, 7, 0.3)
    stream.at(
        5, e.RequestCancelled(1, e.CancelCause.CLIENT), d.RequestFinished(1, d.FinishReason.CANCELLED, 8, 1, 0, 0, 3)
    )
    assert gauges(timeline) == (0, 0, 10, 0.0), "no step follows: what the finish freed must count"
    assert +timeline.waiting_by_reason == {}
    assert timeline.totals.cancels == {"client": 2}
    assert timeline.live == {}


def test_a_refused_request_never_waits() -> None:
    timeline = Timeline(LIMITS, keep_spans=True)
    stream = Stream(timeline)
    stream.at(1, arrived(1, 0), d.RequestAdmitted(1, (0, 1), 0, (), 10, 0), planned(0, (1, 0, 8), free=8))
    stream.at(2, arrived(2, 1), d.RequestRejected(2, d.RejectReason.QUEUE_FULL, 5, 4, 1000))
    stream.at(3, arrived(1, 1), d.RequestRejected(1, d.RejectReason.DUPLICATE_REQUEST, 0, 0, 0))
    assert (timeline.num_running, timeline.num_waiting) == (1, 0)
    assert timeline.totals.rejected == {"queue_full": 1, "duplicate_request": 1}
    assert timeline.totals.num_requests == 1
    assert (timeline.spans[2].outcome, timeline.spans[2].queue_ns) == ("queue_full", None)
    assert timeline.spans[1].phase is Phase.RUNNING, "a duplicate leaves the live one alone"


def test_swapped_blocks_are_counted_and_known_to_be_in_the_host_pool_until_the_request_runs_or_ends() -> None:
    timeline = Timeline(replace(LIMITS, swap_space_blocks=9), keep_spans=True)
    stream = Stream(timeline)
    for request in (1, 2):
        stream.at(1, arrived(request, 0), d.RequestAdmitted(request, (request,), 0, (), 10, 0))
        why = (d.PreemptReason.OUT_OF_BLOCKS, d.PreemptMode.SWAP)
        stream.at(2, completed(0), d.RequestPreempted(request, 0, *why, 3, 0, 0, 1, (2 * request, 2 * request + 1)))
    assert (timeline.num_host_blocks, timeline.num_host_blocks_used) == (9, 4)
    stream.at(3, completed(1), d.RequestAdmitted(1, (5, 6), 1, (), 10, 0, (3,)))
    assert timeline.num_host_blocks_used == 2
    stream.at(4, completed(2)._replace(swap_ns=7), d.RequestFinished(2, d.FinishReason.CANCELLED, 8, 0, 0, 1, 0))
    assert timeline.num_host_blocks_used == 0
    totals = timeline.totals
    assert (totals.num_swaps, totals.num_swapped_out_blocks, totals.num_swapped_in_blocks) == (2, 4, 1)
    assert totals.swap_ns == 7
    assert timeline.spans[1].num_swaps == 1


def test_a_new_engine_process_loses_what_the_old_one_held() -> None:
    timeline = Timeline(LIMITS)
    stream = Stream(timeline)
    stream.at(1, arrived(1, 0), d.RequestAdmitted(1, (0, 1), 0, (), 10, 0), planned(0, (1, 0, 8), free=8))
    stream.at(2, arrived(2, 1))
    stream.at(
        9,
        e.ExecutorRestarted(((1, "r1", 8, 0), (7, "r7", 3, 0))),
        d.RequestFinished(1, d.FinishReason.LOST, 8, 0, 0, 0, 0),
        d.RequestFinished(7, d.FinishReason.LOST, 3, 0, 0, 0, 0),  # it never reached the engine
    )
    assert gauges(timeline) == (0, 0, 10, 0.0)
    assert timeline.totals.finished == {"lost": 3}


def test_requests_from_before_the_recording_and_gaps_do_no_harm() -> None:
    timeline = Timeline()
    for sequence in range(3):
        timeline.apply(step_entry(sequence))
    timeline.apply(Entry(3, 4, RecordingGap(3, 7, "disk full"), ()))
    timeline.apply(
        Entry(
            10,
            5,
            e.DrainRequested(),
            (
                d.RequestAdmitted(5, (1,), 0, (), 3, 1),
                d.RequestDeferred(6, d.DeferReason.TOKEN_BUDGET, 1, 1, -1, 0),
                d.RequestPreempted(5, 6, d.PreemptReason.OUT_OF_BLOCKS, d.PreemptMode.RECOMPUTE, 1, 1, 0),
                d.RequestFinished(5, d.FinishReason.STOP, 1, 1, 0, 0, 1),
            ),
        )
    )
    assert timeline.num_gap_entries == 7
    assert (timeline.num_running, timeline.num_waiting) == (0, 0)
    assert timeline.totals.generation_tokens == 48
    assert timeline.kv_cache_usage == 0.0


def test_a_histogram_counts_a_value_at_its_bound_below_it() -> None:
    timeline = Timeline()
    histogram = timeline.totals.request_num_preemptions
    for value in (0, 1, 2, 11, 99):
        histogram.observe(value)
    assert histogram.cumulative()[:3] == [(1, 2), (2, 3), (3, 3)]
    assert histogram.cumulative()[-2:] == [(20, 4), (float("inf"), 5)]
    assert (histogram.sum, histogram.count) == (113, 5)


def gauges(timeline: Timeline) -> tuple[int, int, int, float]:
    return (timeline.num_running, timeline.num_waiting, timeline.num_blocks_free, timeline.kv_cache_usage)
