"""Rotation, engine processes that follow each other in a run, and segments that are missing or were changed."""

from itertools import pairwise
from pathlib import Path

import pytest

from engine.core.vocabulary import Entry, RecordingClosed
from recorder.continuity import NoticeKind
from recorder.format import segment_path, segment_paths
from recorder.frames import file_digest
from recorder.reader import Recording
from tests.recorder.samples import read, record, small_entries, step_entry

ENTRIES = [step_entry(sequence, num_rows=4) for sequence in range(60)]
SEGMENT_BYTES = 4000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of several segments."""
    return record(tmp_path / "run", ENTRIES, max_segment_bytes=SEGMENT_BYTES)


def test_segments_are_bounded_and_chained(folder: Path) -> None:
    found, recording = read(folder)
    assert found[:-1] == ENTRIES
    assert recording.notices == []
    segments = recording.segments
    assert len(segments) >= 5
    assert [segment.header.segment_number for segment in segments] == list(range(1, len(segments) + 1))
    assert max(segment.num_bytes for segment in segments) <= SEGMENT_BYTES
    for before, segment in pairwise(segments):
        assert segment.header.previous_segment_digest == file_digest(before.path)
        assert not segment.header.starts_fresh
        assert next(Recording.open(segment.path).entries()).sequence == segment.header.first_sequence


def test_an_entry_larger_than_a_segment_has_one_to_itself(tmp_path: Path) -> None:
    entries = [small_entries(3)[0], step_entry(1, num_rows=200), small_entries(3)[2]]
    found, recording = read(record(tmp_path / "run", entries, max_segment_bytes=4000))
    assert found[:-1] == entries
    assert [segment.header.first_sequence for segment in recording.segments] == [0, 1, 2]


def test_a_segment_of_its_own_says_that_it_goes_on_from_another(folder: Path) -> None:
    found, recording = read(segment_path(folder, 3))
    assert found[0].sequence == recording.header.first_sequence > 0
    assert [notice.kind for notice in recording.notices] == [NoticeKind.MID_RUN, NoticeKind.NOT_CLOSED]


def test_a_missing_segment_is_told_with_the_entries_it_cost(folder: Path) -> None:
    lost = read(segment_path(folder, 3))[0]
    segment_path(folder, 3).unlink()
    found, recording = read(folder)
    assert found[:-1] == [entry for entry in ENTRIES if entry not in lost]
    assert [notice.kind for notice in recording.notices] == [NoticeKind.SEGMENT_MISSING, NoticeKind.SEQUENCE_HOLE]
    assert [(gap.first_sequence, gap.num_entries) for gap in recording.missing] == [(lost[0].sequence, len(lost))]
    assert not recording.is_complete


def test_a_damaged_segment_between_others_costs_only_its_own_entries(folder: Path) -> None:
    path = segment_path(folder, 2)
    inside = read(path)[0]
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    found, recording = read(folder)
    num_lost = len(ENTRIES) + 1 - len(found)
    assert num_lost >= 1
    assert [entry for entry in ENTRIES if entry not in found] == inside[-num_lost:]
    assert [notice.kind for notice in recording.notices] == [
        NoticeKind.TORN,
        NoticeKind.DIGEST_DIFFERS,
        NoticeKind.SEQUENCE_HOLE,
    ]
    assert [gap.num_entries for gap in recording.missing] == [num_lost]


def test_a_segment_whose_header_is_damaged_is_left_out_and_named(folder: Path) -> None:
    path = segment_path(folder, 2)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    found, recording = read(folder)
    assert 0 < len(found) < len(ENTRIES)
    assert recording.notices[0].kind is NoticeKind.UNREADABLE
    assert str(path) in str(recording.notices[0])
    assert not recording.is_complete


def test_an_exchanged_segment_is_noticed(folder: Path, tmp_path: Path) -> None:
    """Its own checksums are right, for it is another run's segment."""
    changed = [entry._replace(now_ns=entry.now_ns + 1) for entry in ENTRIES]
    other = record(tmp_path / "other", changed, max_segment_bytes=SEGMENT_BYTES)
    segment_path(folder, 2).write_bytes(segment_path(other, 2).read_bytes())
    _, recording = read(folder)
    assert {notice.kind for notice in recording.notices} == {NoticeKind.DIGEST_DIFFERS}


def test_an_engine_process_that_follows_another_begins_the_next_segment(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, second = small_entries(5), small_entries(7)
    record(folder, first)
    record(folder, second)
    found, recording = read(folder)
    assert [entry for entry in found if not isinstance(entry.event, RecordingClosed)] == first + second
    assert recording.notices == []
    assert [path.name for path in segment_paths(folder)] == ["000001.rpr", "000002.rpr"]
    header = recording.segments[1].header
    assert header.starts_fresh
    assert header.first_sequence == 0
    assert header.previous_segment_digest == file_digest(segment_path(folder, 1))
    sections = [without_end(list(section.entries())) for section in recording.sections]
    assert sections == [first, second]


def test_a_killed_process_is_told_though_another_followed(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", small_entries(5))
    path = segment_path(folder, 1)
    path.write_bytes(path.read_bytes()[:-3])  # within RecordingClosed
    record(folder, small_entries(2))
    found, recording = read(folder)
    assert [entry.sequence for entry in found] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert [notice.kind for notice in recording.notices] == [NoticeKind.TORN, NoticeKind.NOT_CLOSED]
    assert [(gap.segment_number, gap.first_sequence, gap.num_entries) for gap in recording.missing] == [(1, 5, None)]
    assert recording.is_closed


def without_end(entries: list[Entry]) -> list[Entry]:
    assert isinstance(entries[-1].event, RecordingClosed)
    return entries[:-1]
