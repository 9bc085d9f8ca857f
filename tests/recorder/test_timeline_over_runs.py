"""The timeline against the core itself: after every entry of random runs its gauges are the core's, and at the end its
sums are those of the decisions."""

from collections import Counter

import pytest

from engine.core.decisions import FinishReason, RequestFinished, RequestRejected
from engine.core.events import StepFailed
from engine.core.scheduler import Core
from engine.core.vocabulary import entry_from_array, entry_to_array
from recorder.timeline import Timeline
from tests.simulation.checks import Run
from tests.simulation.simulate import simulate

SEEDS = range(60)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [simulate(seed) for seed in SEEDS]


def test_gauges_are_the_cores_after_every_entry(runs: list[Run]) -> None:
    num_waiting_seen = 0
    for run in runs:
        core, timeline = Core(run.limits), Timeline(run.limits)
        for entry in run.entries:
            core.handle(entry.event, entry.now_ns)  # type: ignore[arg-type]  # simulated runs hold core events only
            timeline.apply(entry)
            assert timeline.num_running == len(core.planner.running)
            assert timeline.num_waiting == len(core.planner.waiting)
            assert timeline.num_blocks_free == core.pool.num_free
            assert timeline.live.keys() == core.requests.keys()
            for number, request in core.requests.items():
                span = timeline.live[number]
                assert span.phase.value == request.status.value
                assert span.num_output_tokens == request.num_output_tokens
                assert span.num_preemptions == request.num_preemptions
            num_waiting_seen += timeline.num_waiting
    assert num_waiting_seen > 1000


def test_sums_are_those_of_the_finished_requests(runs: list[Run]) -> None:
    num_preemptions = num_cached_tokens = 0
    for run in runs:
        timeline = Timeline(run.limits)
        for entry in run.entries:
            timeline.apply(entry)
        ends = [end for request, ends in run.ends.items() if request in run.arrivals for end in ends]
        finished = [end for end in ends if isinstance(end, RequestFinished)]
        rejected = [end for end in ends if isinstance(end, RequestRejected)]
        totals = timeline.totals
        totals.finished.pop(FinishReason.LOST, None)  # those of an engine before
        assert totals.finished == Counter(end.reason for end in finished)
        assert totals.rejected == Counter(end.reason for end in rejected)
        assert totals.num_requests == len(finished)
        assert totals.generation_tokens == sum(end.num_output_tokens for end in finished)
        assert totals.request_generation_tokens.sum == totals.generation_tokens
        assert totals.request_prompt_tokens.sum == sum(end.num_prompt_tokens for end in finished)
        assert totals.prompt_tokens == sum(end.num_prompt_tokens for end in finished if end.num_output_tokens)
        assert totals.num_preemptions == sum(end.num_preemptions for end in finished)
        assert totals.prefix_cache_hits == sum(end.num_cached_tokens for end in finished)
        assert totals.num_failed_steps == sum(isinstance(entry.event, StepFailed) for entry in run.entries)
        first_tokens = totals.time_to_first_token_seconds.count
        assert first_tokens == sum(1 for end in finished if end.num_output_tokens)
        assert totals.inter_token_latency_seconds.count == totals.generation_tokens - first_tokens
        assert (timeline.num_running, timeline.num_waiting, timeline.kv_cache_usage) == (0, 0, 0.0)
        assert +timeline.waiting_by_reason == {}
        assert timeline.live == {}
        num_preemptions += totals.num_preemptions
        num_cached_tokens += totals.prefix_cache_hits
    assert num_preemptions > 20
    assert num_cached_tokens > 50
    assert any(FinishReason.CANCELLED in {end.reason for ends in run.ends.values() for end in ends} for run in runs)


def test_what_was_recorded_reads_as_what_was_live(runs: list[Run]) -> None:
    """Entries that went through the file's arrays give the same spans: enumerations became strings, nothing else."""
    for run in runs[:10]:
        live, recorded = Timeline(run.limits, keep_spans=True), Timeline(run.limits, keep_spans=True)
        for entry in run.entries:
            live.apply(entry)
            recorded.apply(entry_from_array(entry_to_array(entry)))
        assert live.spans.keys() == recorded.spans.keys() == run.arrivals.keys()
        for request, span in live.spans.items():
            other = recorded.spans[request]
            assert {name: getattr(span, name) for name in span.__slots__} == {
                name: getattr(other, name) for name in span.__slots__
            }
