"""A Perfetto trace, parsed back with the protobuf library, says what the timeline says."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from engine.core.decisions import PreemptMode, RequestPreempted
from engine.core.events import ExecutorRestarted, RequestArrived
from engine.core.vocabulary import Entry, RecordingGap
from recorder.timeline import Timeline
from replay.export.perfetto import write_perfetto
from replay.export.telling import Telling
from replay.figures import read_timeline
from replay.lives import Run
from replay.simulate.recorded_trace import recorded_arrivals
from tests.replay.recorded_runs import changed_decision, rewrite

Slice = tuple[str, int, int, dict[str, Any]]  # name, from, to, annotations


@dataclass
class Parsed:
    """A trace by the names of its tracks; slices stand in order of their ends."""

    slices: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    instants: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    parents: dict[str, str] = field(default_factory=dict)
    flow_starts: Counter[int] = field(default_factory=Counter)
    flow_ends: Counter[int] = field(default_factory=Counter)


def parsed(path: Path, file: Path) -> Parsed:
    with file.open("wb") as out:
        write_perfetto(Run.open(path), out)
    trace = Trace()
    trace.ParseFromString(file.read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    result = Parsed(parents={d.name: tracks[d.parent_uuid].name for d in tracks.values() if d.parent_uuid})
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    for packet in sorted((p for p in trace.packet if p.HasField("track_event")), key=lambda p: int(p.timestamp)):
        event, name = packet.track_event, tracks[packet.track_event.track_uuid].name
        values = {a.name: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations if a.WhichOneof("value")}
        result.flow_starts.update(event.flow_ids)
        result.flow_ends.update(event.terminating_flow_ids)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((event.name, packet.timestamp, 0, values))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            begun = open_slices[event.track_uuid].pop()
            result.slices[name].append((begun[0], begun[1], packet.timestamp, begun[3] | values))
        elif event.type == TrackEvent.TYPE_INSTANT:
            result.instants[name].append((event.name, packet.timestamp))
        else:
            result.counters[name].append((packet.timestamp, event.counter_value))
    assert not any(open_slices.values()), "every slice ends"
    return result


@pytest.fixture(scope="module")
def trace(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Parsed:
    return parsed(recording, tmp_path_factory.mktemp("perfetto") / "trace")


@pytest.fixture(scope="module")
def timeline(recording: Path) -> Timeline:
    return read_timeline(Run.open(recording))


def test_every_request_has_a_track_whose_slices_are_its_spans(trace: Parsed, timeline: Timeline) -> None:
    assert timeline.totals.num_preemptions > 5, "the recording has something to show"
    for span in timeline.spans.values():
        slices = trace.slices[f"{span.request_id} (#{span.request})"]
        (whole,) = [item for item in slices if item[0] == "request"]
        assert whole[1:3] == (span.arrival_ns, span.ended_ns)
        assert whole[3]["outcome"] == span.outcome
        assert (whole[3]["num_output_tokens"], whole[3]["num_preemptions"]) == (
            span.num_output_tokens,
            span.num_preemptions,
        )
        assert whole[3].get("ttft_ms") == (span.ttft_ns / 1e6 if span.ttft_ns is not None else None)
        names = Counter(name for name, *_ in slices)
        assert names["preempted"] == span.num_preemptions
        assert names["prefill chunk"] == span.num_prefill_chunks
        if span.queue_ns is not None:
            (queued,) = [item for item in slices if item[0] == "queued"]
            assert queued[2] - queued[1] == span.queue_ns


def test_decode_slices_hold_the_tokens_that_no_prefill_emitted(trace: Parsed, timeline: Timeline) -> None:
    for span in timeline.spans.values():
        slices = trace.slices[f"{span.request_id} (#{span.request})"]
        num_decoded = sum(values["num_tokens"] for name, _, _, values in slices if name == "decode")
        assert num_decoded <= span.num_output_tokens
        if span.num_preemptions == 0 and span.num_output_tokens:
            assert num_decoded == span.num_output_tokens - 1


def test_the_steps_track_has_every_step_and_its_phases(trace: Parsed, timeline: Timeline) -> None:
    steps = [item for item in trace.slices["steps"] if item[0] == "step"]
    assert len(steps) == timeline.totals.num_steps
    assert sum(end - begin for _, begin, end, _ in steps) == timeline.totals.step_ns
    executed = sum(values["execute_ns"] for name, _, _, values in trace.slices["steps"] if name == "execute")
    assert executed == timeline.totals.execute_ns


def test_counters_end_where_the_gauges_do(trace: Parsed, timeline: Timeline) -> None:
    last = {name: values[-1][1] for name, values in trace.counters.items()}
    assert (last["running"], last["waiting"]) == (timeline.num_running, timeline.num_waiting)
    assert last["free blocks"] == timeline.num_blocks_free
    assert max(value for _, value in trace.counters["token budget used"]) <= 16
    assert len(trace.counters["step time us"]) > 1


def test_an_arrow_leads_from_each_preemption_to_who_got_the_room(trace: Parsed, timeline: Timeline) -> None:
    received = [name for moments in trace.instants.values() for name, _ in moments if name == "gets the room"]
    assert len(received) > 0
    assert sum(trace.flow_ends.values()) == len(received)
    assert set(trace.flow_ends) <= set(trace.flow_starts), "no arrow comes from nowhere"


def test_preemptions_of_one_cascade_share_a_flow(recording: Path, tmp_path: Path) -> None:
    def joined(entries: list[Entry]) -> list[Entry]:
        for occurrence in (0, 1):
            entries, _, _ = changed_decision(
                entries, RequestPreempted, lambda decision: decision._replace(chain=999), occurrence=occurrence
            )
        return entries

    trace = parsed(rewrite(recording, tmp_path / "cascade", joined), tmp_path / "trace")
    assert trace.flow_starts[2 * ((1 << 32) + 1_000) + 1] == 2


def test_requests_are_grouped_by_tenant(recording: Path, tmp_path: Path) -> None:
    def named(entries: list[Entry]) -> list[Entry]:
        return [
            entry._replace(event=entry.event._replace(tenant="ab"[entry.event.request % 2]))
            if isinstance(entry.event, RequestArrived)
            else entry
            for entry in entries
        ]

    trace = parsed(rewrite(recording, tmp_path / "tenants", named), tmp_path / "trace")
    assert trace.parents["req-0 (#0)"] == "tenant a"
    assert trace.parents["req-7 (#7)"] == "tenant b"
    assert trace.parents["tenant a"] == "tenants"  # the run's name


def test_a_preemption_by_swap_has_its_own_name(recording: Path, tmp_path: Path) -> None:
    def swapped(entries: list[Entry]) -> list[Entry]:
        changed, _, _ = changed_decision(
            entries, RequestPreempted, lambda decision: decision._replace(mode=PreemptMode.SWAP)
        )
        return changed

    trace = parsed(rewrite(recording, tmp_path / "swapped", swapped), tmp_path / "trace")
    assert sum(name == "swapped" for slices in trace.slices.values() for name, *_ in slices) == 1


def test_a_gap_is_a_moment_and_ends_what_was_going_on(recording: Path, tmp_path: Path) -> None:
    def with_gap(entries: list[Entry]) -> list[Entry]:
        gap = Entry(100, entries[150].now_ns, RecordingGap(100, 50, "the queue was full"), ())
        return [*entries[:100], gap, *entries[150:]]

    path = rewrite(recording, tmp_path / "gap", with_gap)
    trace = parsed(path, tmp_path / "trace")
    assert "gap" in [name for name, _ in trace.instants["scheduler"]]
    telling = Telling()
    list(telling.of(Run.open(path)))
    assert telling.num_gap_entries == 50


def test_whoever_an_engine_held_when_it_died_is_closed_there(recording: Path, tmp_path: Path) -> None:
    def cut(entries: list[Entry]) -> list[Entry]:
        return [*entries[:150], Entry(150, entries[149].now_ns + 5, ExecutorRestarted(()), ())]

    path = rewrite(recording, tmp_path / "died", cut)
    slices = parsed(path, tmp_path / "trace").slices
    timeline = read_timeline(Run.open(path))
    lost = [item for of_track in slices.values() for item in of_track if item[3].get("outcome") == "lost"]
    assert len(lost) == timeline.totals.finished["lost"] > 0
    assert {end for _, _, end, _ in lost} == {timeline.last_ns}


def test_a_request_that_goes_on_in_the_next_engine_stays_one(recording: Path, tmp_path: Path) -> None:
    def handed_over(entries: list[Entry]) -> list[Entry]:
        timeline = Timeline(keep_spans=True)
        for entry in entries[:150]:
            timeline.apply(entry)
        arrivals = {e.event.request: e.event for e in entries if isinstance(e.event, RequestArrived)}
        counts = {request: span.num_output_tokens for request, span in timeline.live.items()}
        now_ns = entries[149].now_ns + 5
        goes_on = [
            Entry(151 + place, now_ns, arrivals[request]._replace(num_output_tokens=count, num_handovers=1), ())
            for place, (request, count) in enumerate(counts.items())
        ]
        restarted = ExecutorRestarted((), tuple(counts.items()))
        return [*entries[:150], Entry(150, now_ns, restarted, ()), *goes_on]

    path = rewrite(recording, tmp_path / "handed-over", handed_over)
    trace, timeline = parsed(path, tmp_path / "trace"), read_timeline(Run.open(path))
    assert len(timeline.live) > 3
    for span in timeline.live.values():
        names = Counter(name for name, *_ in trace.slices[f"{span.request_id} (#{span.request})"])
        assert (names["handed over"], names["request"]) == (1, 1)
    arrivals = list(recorded_arrivals(Run.open(path), []))
    assert len(arrivals) == len({arrival.name for arrival in arrivals}) == len(timeline.spans)


def test_nothing_is_kept_of_who_has_ended(recording: Path) -> None:
    telling, most = Telling(), 0
    for _ in telling.of(Run.open(recording)):
        most = max(most, len(telling._lives.open), len(telling._timeline.spans))
    assert most < 48, "at no time were all requests held"
    assert not telling._lives.open
    assert not telling._timeline.spans
