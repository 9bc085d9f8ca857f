"""Seeking in a live segment: the second time from near the place, and to the same entries."""

from pathlib import Path

import msgpack
import pytest

from engine.core.events import DrainRequested
from engine.core.vocabulary import CoreKeyframe, Entry, entry_to_array
from recorder import frame_places, reader
from recorder.format import SEGMENT_MAGIC, segment_path
from recorder.frames import FramedFile, FrameReader
from recorder.header import Header
from recorder.reader import Recording

FIRST = 70_000  # so that sequences are packed as in a long recording


def segment(folder: Path, num_entries: int, salt: bytes = bytes(16)) -> Path:
    """Every tenth entry has a keyframe before it."""
    header = Header(salt=salt, first_sequence=FIRST, starts_fresh=False)
    folder.mkdir(exist_ok=True)
    path = segment_path(folder, 1)
    path.unlink(missing_ok=True)
    file = FramedFile(path, SEGMENT_MAGIC, header.to_map())
    for sequence in range(FIRST, FIRST + num_entries):
        if sequence % 10 == 0:
            file.append([msgpack.packb(entry_to_array(Entry(sequence, sequence, CoreKeyframe(0, None), ())))])
        file.append([msgpack.packb(entry_to_array(Entry(sequence, sequence, DrainRequested(), ())))])
    file.close()
    return folder


@pytest.fixture(autouse=True)
def close_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FRAMES_APART", 7)
    monkeypatch.setattr(reader, "_PLACES", frame_places.FramePlaces())


def test_whichever_way_one_came_the_entries_are_the_same(tmp_path: Path) -> None:
    run = segment(tmp_path / "run", 120)
    everything = list(Recording.open(run).entries(keyframes=True))
    for sequence in (FIRST + 110, FIRST + 40, FIRST + 41, FIRST + 119, FIRST + 5, FIRST + 80, FIRST + 79):
        for _ in range(2):
            found = list(Recording.open(run).entries(sequence, keyframes=True))
            assert found == [entry for entry in everything if entry.sequence >= sequence]


def test_the_second_time_what_lies_before_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = segment(tmp_path / "run", 120)
    read: list[int] = []
    next_body = FrameReader._next_body

    def counted(frames: FrameReader) -> bytes | None:
        read.append(1)
        return next_body(frames)

    monkeypatch.setattr(FrameReader, "_next_body", counted)
    counts = []
    for _ in range(2):
        recording = Recording.open(run)
        read.clear()
        assert len(list(recording.entries(FIRST + 110))) == 10
        counts.append(len(read))
    assert counts[0] > 130
    assert counts[1] < 40


def test_a_file_in_the_place_of_another_is_read_from_its_start(tmp_path: Path) -> None:
    run = segment(tmp_path / "run", 120)
    assert len(list(Recording.open(run).entries(FIRST + 110))) == 10
    segment(tmp_path / "run", 115, salt=bytes(range(16)))
    recording = Recording.open(run)
    assert [entry.sequence for entry in recording.entries(FIRST + 110)] == list(range(FIRST + 110, FIRST + 115))
    assert recording.is_complete
