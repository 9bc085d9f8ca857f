"""Requests that go on in another engine: each token, request and end counts once, whatever was recorded before."""

from engine.core import decisions as d
from engine.core import events as e
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from recorder.timeline import Timeline

STEP = e.StepCompleted(0, (), (), 0, 0)


def arrived(request: int, num_output_tokens: int = 0, num_handovers: int = 0) -> e.RequestArrived:
    event = e.RequestArrived(request, f"r{request}", "t", 0, 0, 4, 9, (), SamplingParams())
    return event._replace(num_output_tokens=num_output_tokens, num_handovers=num_handovers)


def read(*entries: tuple[e.Event, tuple[d.Decision, ...]]) -> Timeline:
    timeline = Timeline(keep_spans=True)
    for sequence, (event, decisions) in enumerate(entries):
        timeline.apply(Entry(sequence, 10 * sequence, event, decisions))
    return timeline


def emitted(*counts: int) -> tuple[e.Event, tuple[d.Decision, ...]]:
    return STEP, tuple([d.TokensEmitted(0, ((0, count),)) for count in counts])


END = d.RequestFinished(0, d.FinishReason.LENGTH, 4, 3, 0, 0, 1)


def test_tokens_that_were_recorded_but_not_delivered_count_once() -> None:
    timeline = read(
        (arrived(0), ()),
        emitted(1, 2),
        (e.ExecutorRestarted((), ((0, 1),)), ()),
        (arrived(0, 1, 1), ()),
        emitted(2, 3),
        (STEP, (END,)),
    )
    totals, span = timeline.totals, timeline.spans[0]
    assert (totals.generation_tokens, totals.num_tokens_emitted_again, totals.num_requests) == (3, 1, 1)
    assert (totals.finished, totals.num_handovers, span.num_handovers) == ({"length": 1}, 1, 1)
    assert span.token_times_ns == [10, 10, 40]
    assert (timeline.num_running, timeline.num_waiting, timeline.live) == (0, 0, {})


def test_an_end_that_was_recorded_but_not_delivered_counts_once() -> None:
    timeline = read(
        (arrived(0), ()),
        emitted(1, 2, 3),
        (STEP, (END,)),
        (e.ExecutorRestarted((), ((0, 1),)), ()),
        (arrived(0, 1, 1), ()),
        emitted(2, 3),
        (STEP, (END,)),
    )
    totals = timeline.totals
    assert (totals.generation_tokens, totals.num_tokens_emitted_again, totals.num_requests) == (3, 2, 1)
    assert totals.finished == {"length": 1}
    assert totals.request_generation_tokens.count == 1


def test_who_is_cancelled_between_two_engines_ends_by_the_cancel() -> None:
    timeline = read(
        (arrived(0), ()),
        (e.ExecutorRestarted((), ((0, 0),)), ()),
        (e.RequestCancelled(0, e.CancelCause.CLIENT), ()),
    )
    assert timeline.totals.finished == {"cancelled": 1}
    assert (timeline.num_waiting, timeline.live) == (0, {})


def test_a_request_of_an_earlier_recording_has_no_first_token_here() -> None:
    timeline = read((arrived(0, 5, 1), ()), emitted(6))
    assert timeline.totals.generation_tokens == 1
    assert timeline.totals.time_to_first_token_seconds.count == 0
    assert timeline.spans[0].num_output_tokens == 6
