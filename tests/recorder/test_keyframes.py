"""Keyframes in the stream: where they come, that nothing depends on them, and how they are found."""

import random
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.core.events import CancelCause, RequestCancelled
from engine.core.vocabulary import CoreKeyframe, Entry
from recorder.disk_sync import DiskSync
from recorder.format import segment_paths
from recorder.fsck import examine
from recorder.keyframe_demand import AGE_NS, STEPS, STREAM_PER_KEYFRAME, KeyframeDemand
from recorder.keyframes import first_in, last_at
from recorder.reader import Recording
from recorder.repair import repair
from recorder.sealed import SealedReader
from recorder.sealing import seal
from recorder.segment_files import open_segment
from recorder.segments import Lost, SegmentWriter
from tests.recorder.samples import header, record, recorder, small_entries, step_entry, wait_until_written

STATE = (1, 7, (), b"\x91\xcc\xcb" * 100)
ENTRIES = [step_entry(sequence, num_rows=4) for sequence in range(60)]
SEGMENT_BYTES = 6_000


def keyframe(sequence: int, num_steps: int = 0) -> Entry:
    return Entry(sequence, sequence * 10, CoreKeyframe(num_steps, STATE), ())


def with_keyframes(entries: Iterable[Entry], every: int = 10) -> list[Entry]:
    found: list[Entry] = []
    for entry in entries:
        if entry.sequence and entry.sequence % every == 0:
            found.append(keyframe(entry.sequence, entry.sequence))
        found.append(entry)
    return found


def written(folder: Path, entries: list[Entry], **options: Any) -> Path:
    writer = recorder(folder, **options)
    for entry in entries:
        writer.record_keyframe(entry) if type(entry.event) is CoreKeyframe else writer.record(entry)
    writer.close("test")
    return folder


def read(path: Path, from_sequence: int = 0) -> tuple[list[Entry], list[str]]:
    recording = Recording.open(path)
    found = list(recording.entries(from_sequence, keyframes=True))
    return found, [str(notice) for notice in recording.notices]


def test_they_are_read_where_they_were_written_and_only_by_those_who_ask(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", with_keyframes(ENTRIES))
    found, notices = read(folder)
    assert found[:-1] == with_keyframes(ENTRIES)
    assert notices == []
    assert list(Recording.open(folder).entries())[:-1] == ENTRIES


@pytest.mark.parametrize("is_sealed", [False, True], ids=["live", "sealed"])
def test_reading_can_begin_at_each_of_them(tmp_path: Path, is_sealed: bool) -> None:
    folder = written(tmp_path / "run", with_keyframes(ENTRIES))
    if is_sealed:
        seal(segment_paths(folder)[0])
    whole, _ = read(folder)
    for place, entry in enumerate(whole):
        if type(entry.event) is CoreKeyframe:
            assert read(folder, entry.sequence) == (whole[place:], [])


@pytest.mark.parametrize("is_sealed", [False, True], ids=["live", "sealed"])
def test_the_nearest_one_before_a_step_is_found(tmp_path: Path, is_sealed: bool) -> None:
    folder = written(tmp_path / "run", with_keyframes(ENTRIES), max_segment_bytes=SEGMENT_BYTES)
    if is_sealed:
        for path in segment_paths(folder):
            seal(path)
    segments = Recording.open(folder).segments
    assert len(segments) > 2
    found = [last_at(segments, step) for step in (0, 9, 10, 35, 50, 10_000)]
    assert [keyframe and keyframe.sequence for keyframe in found] == [None, None, 10, 30, 50, 50]
    first = first_in(segments[2:])
    assert first is not None
    assert first.sequence >= segments[2].header.first_sequence


def test_one_begins_a_chunk_of_a_sealed_segment_and_stands_in_its_index(tmp_path: Path) -> None:
    path = seal(segment_paths(written(tmp_path / "run", with_keyframes(ENTRIES)))[0])
    with closing(SealedReader(path)) as reader:
        index = reader.index
    assert index is not None
    assert [(item.sequence, item.step, item.chunk) for item in index.keyframes] == [
        (10 * number, 10 * number, number) for number in range(1, 6)
    ]
    assert [chunk.first_sequence for chunk in index.chunks] == [0, 10, 20, 30, 40, 50]
    assert examine(path.parent).is_sound


class Driven:
    """A segment writer whose owner gives a keyframe whenever one is wanted."""

    def __init__(self, folder: Path, *, max_bytes: int = SEGMENT_BYTES, max_age_ns: int = 10**15) -> None:
        folder.mkdir()
        self.folder = folder
        self.clock = ManualClock()
        self.demand = KeyframeDemand()
        self.disk = DiskSync(1000)
        self.segments = SegmentWriter(folder, header(), self.clock, self.disk, self.demand, max_bytes, max_age_ns)

    def append(self, entry: Entry, *, gives: bool = True) -> None:
        self.demand.see(entry)
        self.segments.append([entry])
        if gives and self.demand.is_wanted:
            self.demand.answer()
            self.segments.append([keyframe(entry.sequence + 1)])

    def close(self) -> Recording:
        self.segments.close("test")
        self.disk.close(10)
        return Recording.open(self.folder)

    def begin_with_keyframe(self) -> list[bool]:
        recording = self.close()
        firsts = [next(section_entries(segment.path)) for segment in recording.segments]
        return [type(entry.event) is CoreKeyframe for entry in firsts]


def section_entries(path: Path) -> Iterator[Entry]:
    return Recording.open(path).entries(keyframes=True)


def test_each_further_segment_begins_with_one_and_keeps_its_bound(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run")
    for entry in ENTRIES:
        driven.append(entry)
    assert max(path.stat().st_size for path in segment_paths(tmp_path / "run")) <= SEGMENT_BYTES
    begin = driven.begin_with_keyframe()
    assert len(begin) > 3
    assert begin == [False] + [True] * (len(begin) - 1)


def test_a_segment_ends_at_its_bound_when_none_comes(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run")
    for entry in ENTRIES:
        driven.append(entry, gives=False)
    begin = driven.begin_with_keyframe()
    assert len(begin) > 3
    assert not any(begin)
    assert max(path.stat().st_size for path in segment_paths(tmp_path / "run")) <= SEGMENT_BYTES


def test_an_old_segment_waits_a_little_for_one(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run", max_age_ns=1_000_000)
    driven.demand.answer()  # somebody gives them
    driven.append(ENTRIES[0])
    driven.clock.advance(1_000_000)
    driven.append(ENTRIES[1], gives=False)
    assert driven.segments.segment_number == 1
    driven.clock.advance(50_000)
    driven.append(ENTRIES[2], gives=False)
    assert driven.segments.segment_number == 2
    driven.clock.advance(1_000_000)
    driven.append(ENTRIES[3])
    driven.append(ENTRIES[4])
    assert driven.begin_with_keyframe() == [False, False, True]


def test_one_is_due_after_steps_or_time_once_enough_went_by() -> None:
    demand = KeyframeDemand()
    for sequence in range(STEPS):
        assert not demand.is_wanted
        demand.see(step_entry(sequence, 1)._replace(now_ns=sequence))
    assert demand.is_wanted
    demand.has_written(1_000)
    demand.answer()
    demand.see(step_entry(STEPS, 1)._replace(now_ns=STEPS + AGE_NS))
    assert not demand.is_wanted
    demand.has_grown(STREAM_PER_KEYFRAME * 1_000)
    assert demand.is_wanted
    demand.answer()
    assert not demand.is_wanted


def test_behind_a_gap_one_is_asked_for(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run")
    driven.append(ENTRIES[0])
    assert not driven.demand.is_wanted
    driven.segments.append([Lost(1, 5, 60, "the test lost them")])
    assert driven.demand.is_wanted
    driven.segments.append([keyframe(6), ENTRIES[6]])
    recording = driven.close()
    assert [entry.sequence for entry in recording.entries(keyframes=True)] == [0, 1, 6, 6, 7]
    assert [(gap.first_sequence, gap.num_entries) for gap in recording.missing] == [(1, 5)]


def test_one_that_is_lost_while_paused_costs_no_entry(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "run")
    writer.record(ENTRIES[0])
    wait_until_written(writer, 1)
    writer.pause("the test wants it")
    assert not writer.wants_keyframe
    writer.record_keyframe(keyframe(1))
    writer.record(ENTRIES[1])
    assert writer.wait_until_settled(1, 10)
    writer.resume()
    writer.close("test")
    found, _ = read(tmp_path / "run")
    assert [entry.sequence for entry in found] == [0, 1, 2]
    assert writer.num_gap_entries == 1


def test_a_keyframe_settles_no_entry(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "run")
    writer.record(ENTRIES[0])
    writer.record_keyframe(keyframe(1))
    assert writer.wait_until_settled(0, 10)
    assert not writer.wait_until_settled(1, 0.05)
    writer.close("test")


def test_what_is_refused_before_and_behind_one_is_two_gaps(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "run", max_queue_entries=0)
    cancelled = RequestCancelled(0, CancelCause.CLIENT)
    for sequence in range(3):
        writer.record(Entry(sequence, sequence, cancelled, ()))
    writer.record_keyframe(keyframe(3))
    for sequence in range(3, 5):
        writer.record(Entry(sequence, sequence, cancelled, ()))
    writer.close("test")
    found, _ = read(tmp_path / "run")
    kinds = [(type(entry.event).__name__, entry.sequence) for entry in found]
    assert kinds == [("RecordingGap", 0), ("CoreKeyframe", 3), ("RecordingGap", 3), ("RecordingClosed", 5)]


def test_repair_keeps_them(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", with_keyframes(ENTRIES))
    repaired = repair(folder, tmp_path / "aside")
    assert (repaired.num_gaps, repaired.notices) == (0, [])
    assert read(tmp_path / "aside")[0] == read(folder)[0]


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_one_is_never_believed(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    folder = written(tmp_path / "run", with_keyframes(small_entries(40), every=4))
    path = segment_paths(folder)[0]
    if seed % 2:
        path = seal(path)
    whole = [entry for entry in read(folder)[0] if type(entry.event) is CoreKeyframe]
    data = bytearray(path.read_bytes())
    with closing(open_segment(path)) as frames:
        first = 16 + len(frames.header_body)  # a damaged header is no recording at all
    if seed % 3:
        data[draw.randrange(first, len(data))] ^= 1 << draw.randrange(8)
    else:
        del data[draw.randrange(first, len(data)) :]
    path.write_bytes(data)
    found = [entry for entry in read(folder)[0] if type(entry.event) is CoreKeyframe]
    assert all(entry in whole for entry in found)


def test_recordings_from_before_there_were_any_have_none(tmp_path: Path) -> None:
    segments = Recording.open(record(tmp_path / "run", ENTRIES)).segments
    assert first_in(segments) is None
    assert last_at(segments, 10_000) is None
