"""The bounds of a record directory: what goes, in which order, and what never does."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import ManualClock, SystemClock
from engine.core.decisions import FinishReason, RequestFinished, StarvationCause, StarvationSeen
from engine.core.events import CancelCause, ExecutorRestarted, RequestCancelled, StepFailed
from engine.core.vocabulary import Entry, RecordingGap
from recorder.format import segment_path, segment_paths
from recorder.housekeeping import Order, keep_house
from recorder.incidents import Incident, Pin, incident_in, pin_segment, pins_of
from recorder.keeper import Keeper
from recorder.reader import Recording
from recorder.retention import Bounds, StoredSegment, choose, scan
from tests.recorder.samples import read, record, recorder, small_entries, step_entry, wait_until_written

DAY_NS = 86_400 * 10**9
LOOSE = Bounds(max_bytes=2**50, max_age_s=10**9, min_free_bytes=0, max_pin_bytes=2**50)


def stored(number: int, num_bytes: int = 100, **changes: bool) -> StoredSegment:
    return StoredSegment(Path("run"), f"{number:06d}", [".rps"], num_bytes, written_ns=number * DAY_NS, **changes)


def names(segments: list[StoredSegment]) -> list[int]:
    return [int(segment.number) for segment in segments]


def test_the_oldest_go_first_until_the_rest_fits() -> None:
    segments = [stored(number) for number in range(10)]
    assert names(choose(segments, LOOSE._replace(max_bytes=350), 10 * DAY_NS, 0).removed) == [0, 1, 2, 3, 4, 5, 6]
    assert names(choose(segments, LOOSE, 10 * DAY_NS, 0).removed) == []


def test_what_is_too_old_goes_though_there_is_room() -> None:
    segments = [stored(number) for number in range(10)]
    assert names(choose(segments, LOOSE._replace(max_age_s=3 * 86_400), 10 * DAY_NS, 0).removed) == list(range(7))


def test_old_recordings_make_room_on_the_disk() -> None:
    segments = [stored(number) for number in range(10)]
    assert names(choose(segments, LOOSE._replace(min_free_bytes=1000), 0, 750).removed) == [0, 1, 2]


def test_pinned_segments_and_those_in_use_stay() -> None:
    segments = [stored(0, is_pinned=True), stored(1, is_in_use=True), stored(2)]
    choice = choose(segments, Bounds(0, 0, 2**60, 1000), 10**6 * DAY_NS, 0)
    assert names(choice.removed) == [2]


def test_pins_have_a_budget_of_their_own_and_automatic_ones_pay_first() -> None:
    operators = [stored(number, is_pinned=True) for number in range(3)]
    automatic = [stored(number, is_pinned=True, is_pinned_automatically=True) for number in range(3, 6)]
    pinned = [*operators, *automatic]
    assert names(choose(pinned, LOOSE._replace(max_pin_bytes=400), 0, 0).unpinned) == [3, 4]
    assert names(choose(pinned, LOOSE._replace(max_pin_bytes=150), 0, 0).unpinned) == [3, 4, 5, 0, 1]
    both = choose(pinned, LOOSE._replace(max_pin_bytes=400, max_bytes=100), 0, 0)
    assert names(both.removed) == [3], "a pin that is taken off exposes its segment at once"


def test_bounds_hold_whatever_is_there() -> None:
    draw = random.Random(2)
    for _ in range(500):
        segments = [
            stored(
                number,
                draw.randrange(1, 1000),
                is_pinned=(pinned := draw.random() < 0.3),
                is_pinned_automatically=pinned and draw.random() < 0.5,
                is_in_use=draw.random() < 0.05,
            )
            for number in range(draw.randrange(30))
        ]
        bounds = Bounds(draw.randrange(8000), draw.randrange(1, 30) * 86_400, 0, draw.randrange(3000))
        choice = choose(segments, bounds, 30 * DAY_NS, 0)
        for segment in choice.unpinned:
            segment.is_pinned = False
        left = [segment for segment in segments if segment not in choice.removed]
        assert sum(s.num_bytes for s in left if s.is_pinned) <= bounds.max_pin_bytes
        loose = [s for s in left if not s.is_pinned]
        if sum(s.num_bytes for s in loose) > bounds.max_bytes:
            assert all(s.is_in_use for s in loose)
        assert not any(segment.is_pinned or segment.is_in_use for segment in choice.removed)


def order(directory: Path, bounds: Bounds, own_run: str = "", own_number: int = 0) -> Order:
    return Order(str(directory), own_run, own_number, bounds)


def test_a_pass_seals_what_earlier_engines_left_and_removes_what_is_too_much(tmp_path: Path) -> None:
    for number, run in enumerate(("old", "middle", "new")):
        record(tmp_path / run, [step_entry(n) for n in range(40)], record_content=True, max_segment_bytes=9000)
        for path in (tmp_path / run).iterdir():
            os.utime(path, ns=(number * DAY_NS, number * DAY_NS))
    expected, _ = read(tmp_path / "new")
    outcome = keep_house(order(tmp_path, LOOSE), ManualClock())
    assert outcome.num_sealed == 3 * len(segment_paths(tmp_path / "new"))
    assert read(tmp_path / "new")[0] == expected
    assert {path.suffix for path in tmp_path.rglob("0*")} == {".rps", ".vault"}
    one_run = outcome.num_bytes // 3
    outcome = keep_house(order(tmp_path, LOOSE._replace(max_bytes=one_run + 100)), ManualClock())
    assert [path.name for path in tmp_path.iterdir()] == ["new"], "with their vaults, and the folders"
    assert outcome.num_bytes == one_run


def test_a_run_that_is_recorded_into_is_left_alone_but_for_its_closed_segments(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "run", max_segment_bytes=9000)
    for sequence in range(40):
        writer.record(step_entry(sequence))
    wait_until_written(writer, 40)
    keep_house(order(tmp_path, LOOSE._replace(max_bytes=0)), ManualClock())
    assert not list(tmp_path.rglob("*.rps")), "to another process all of it is in use"
    number = writer.segment_number
    outcome = keep_house(order(tmp_path, LOOSE, "run", number), ManualClock())
    assert outcome.num_sealed == number - 1
    keep_house(order(tmp_path, LOOSE._replace(max_bytes=0), "run", number), ManualClock())
    assert segment_paths(tmp_path / "run") == [segment_path(tmp_path / "run", number)]
    writer.close("done")


def test_a_segment_that_cannot_be_sealed_is_named_and_left(tmp_path: Path) -> None:
    path = segment_path(record(tmp_path / "run", small_entries(3)), 1)
    path.write_bytes(b"not ours" + path.read_bytes()[8:])
    outcome = keep_house(order(tmp_path, LOOSE), ManualClock())
    assert len(outcome.faults) == 1
    assert "000001.rpr is not sealed" in outcome.faults[0]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["000001.rpr"]


def test_incidents_are_recognised() -> None:
    def entry(event: object, *decisions: object) -> Entry:
        return Entry(0, 0, event, decisions)  # type: ignore[arg-type]

    cancelled = RequestCancelled(1, CancelCause.CLIENT)
    failed = RequestFinished(1, FinishReason.FAILED, 1, 1, 0, 0, 0)
    assert incident_in(entry(StepFailed(1, "x"))) is Incident.STEP_FAILED
    assert incident_in(entry(ExecutorRestarted(()))) is Incident.ENGINE_CRASH
    assert incident_in(entry(cancelled, failed)) is Incident.REQUEST_FAILED
    starving = StarvationSeen(1, StarvationCause.PREEMPTED, 0, 3, 3)
    assert incident_in(entry(cancelled, starving)) is Incident.STARVATION
    assert incident_in(step_entry(0)) is None


def test_pins_are_read_back_and_any_file_pins(tmp_path: Path) -> None:
    segment = tmp_path / "000001.rps"
    assert pins_of(segment) == []
    pins = [Pin("thrashing", True, 5), Pin("ask Ada, ☃", False, 6)]
    for pin in pins:
        pin_segment(segment, pin)
    assert pins_of(segment) == pins
    segment.with_suffix(".pin").write_text("")
    assert pins_of(segment) == [Pin("", False, 0)]
    segment.with_suffix(".pin").write_text("because\n")
    assert pins_of(segment) == [Pin("because", False, 0)]


def test_an_incident_pins_its_segment_and_a_crash_the_one_before_too(tmp_path: Path) -> None:
    record(tmp_path / "run", small_entries(3))
    writer = recorder(tmp_path / "run")
    keeper = Keeper(writer, LOOSE, SystemClock(), warn=lambda text, figures: pytest.fail(text))
    writer.record(Entry(0, 0, ExecutorRestarted(()), ()))
    writer.record(Entry(1, 0, StepFailed(0, "x"), ()))
    writer.record(Entry(2, 0, StepFailed(1, "x"), ()))
    writer.close("done")
    keeper.close()
    reasons = [[pin.reason for pin in pins_of(segment)] for segment in segment_paths(tmp_path / "run")]
    assert reasons == [["engine_crash"], ["engine_crash", "step_failed"]]
    assert [path.suffix for path in segment_paths(tmp_path / "run")] == [".rps", ".rps"], "sealed at the end"
    assert Recording.open(tmp_path / "run").is_complete


def test_streams_taken_over_from_an_earlier_daemon_are_no_crash_of_this_run(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "run")
    keeper = Keeper(writer, LOOSE, SystemClock(), warn=lambda text, figures: pytest.fail(text))
    writer.record(Entry(0, 0, ExecutorRestarted((), ((0, 3),)), ()))
    writer.close("done")
    keeper.close()
    assert [pins_of(segment) for segment in segment_paths(tmp_path / "run")] == [[]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_stops_recording_and_space_lets_it_go_on(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(800_000))
    writer = recorder(small_disk / "run", sync_interval_ms=10)
    for sequence in range(2000):
        writer.record(step_entry(sequence))
        assert writer.wait_until_settled(sequence, 10)
    assert writer.num_gap_entries > 1000
    assert writer.has_gap_to_write
    assert "errno 28" in writer.last_error
    num_kept = writer.num_entries
    ballast.unlink()
    for sequence in range(2000, 2010):
        writer.record(step_entry(sequence))
    writer.close("done")
    found, _ = read(small_disk / "run")
    assert [entry.sequence for entry in found[:num_kept]] == list(range(num_kept))
    gaps = [entry.event for entry in found if isinstance(entry.event, RecordingGap)]
    assert sum(gap.num_entries for gap in gaps) == 2000 - num_kept
    assert [entry.sequence for entry in found[-11:-1]] == list(range(2000, 2010))


def test_below_the_floor_of_space_recording_stops_until_there_is_more(small_disk: Path) -> None:
    ballast, told = small_disk / "ballast", list[str]()
    ballast.write_bytes(bytes(700_000))
    writer = recorder(small_disk / "run")
    bounds = LOOSE._replace(min_free_bytes=600_000)
    keeper = Keeper(writer, bounds, SystemClock(), warn=lambda text, figures: told.append(text))
    keeper._mind_the_floor()
    assert writer.is_paused
    writer.record(step_entry(0))
    assert writer.wait_until_settled(0, 10)
    assert writer.num_gap_entries == 1
    ballast.unlink()
    keeper._mind_the_floor()
    assert not writer.is_paused
    writer.record(step_entry(1))
    writer.close("done")
    keeper.close()
    found, _ = read(small_disk / "run")
    assert found[0].event == RecordingGap(0, 1, "less than 600000 bytes are free on the recorder's disk")
    assert found[1] == step_entry(1)
    assert [text.split(":")[0] for text in told] == ["recording has stopped", "recording goes on"]


def test_a_scan_sees_files_as_they_are(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", small_entries(3), record_content=True)
    pin_segment(segment_path(folder, 1), Pin("why", False, 0))
    (folder / "notes.txt").write_text("mine")
    (segment,) = scan(tmp_path)
    assert sorted(segment.suffixes) == [".pin", ".rpr", ".vault"]
    assert (segment.is_pinned, segment.is_pinned_automatically, segment.is_in_use) == (True, False, False)
