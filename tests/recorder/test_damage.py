"""Damaged files: all whole entries before the damage are read, none is invented, and the loss is told."""

import random
from pathlib import Path

import pytest

from engine.core.vocabulary import Entry
from recorder.continuity import NoticeKind
from recorder.errors import RecordingError
from recorder.format import FRAME_PREFIX, SEGMENT_MAGIC, segment_path
from recorder.frames import FramedFile, FrameReader
from tests.recorder.samples import header, one_of_every_kind, read, record, step_entry


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Entry], list[int]]:
    """A segment's bytes, its entries, and the offset at which each entry's frame ends."""
    entries = one_of_every_kind() + [
        step_entry(sequence, num_rows=3) for sequence in range(len(one_of_every_kind()), 14)
    ]
    path = record(tmp_path_factory.mktemp("whole") / "run", entries) / "000001.rpr"
    frames = FrameReader(path, SEGMENT_MAGIC)
    ends = []
    end = int.from_bytes(path.read_bytes()[8:12], "little") + len(SEGMENT_MAGIC) + FRAME_PREFIX.size
    for body in frames:
        end += FRAME_PREFIX.size + len(body)
        ends.append(end)
    data = path.read_bytes()
    assert ends[-1] == len(data)
    return data, read(path)[0], ends


def test_a_last_record_cut_at_any_byte_leaves_all_whole_ones(
    whole: tuple[bytes, list[Entry], list[int]], tmp_path: Path
) -> None:
    data, entries, ends = whole
    path = tmp_path / "000001.rpr"
    assert ends[-1] - ends[-2] > FRAME_PREFIX.size
    for end in range(ends[-2] + 1, ends[-1]):
        path.write_bytes(data[:end])
        found, recording = read(path)
        assert found == entries[:-1]
        torn, not_closed = recording.notices
        assert (torn.kind, torn.offset, torn.num_bytes_lost) == (NoticeKind.TORN, ends[-2], end - ends[-2])
        assert str(torn).startswith(f"{path}: {end - ends[-2]} bytes from offset {ends[-2]} on are lost: ")
        assert not_closed.kind is NoticeKind.NOT_CLOSED
        assert not recording.is_complete
        assert [(lack.first_sequence, lack.num_entries) for lack in recording.missing] == [(len(entries) - 1, None)]


def test_a_file_cut_between_two_frames_is_whole_but_not_closed(
    whole: tuple[bytes, list[Entry], list[int]], tmp_path: Path
) -> None:
    data, entries, ends = whole
    path = tmp_path / "000001.rpr"
    path.write_bytes(data[: ends[-2]])
    found, recording = read(path)
    assert found == entries[:-1]
    assert [notice.kind for notice in recording.notices] == [NoticeKind.NOT_CLOSED]
    assert recording.is_complete
    assert not recording.is_closed


def test_a_file_cut_anywhere_yields_exactly_its_whole_entries(
    whole: tuple[bytes, list[Entry], list[int]], tmp_path: Path
) -> None:
    data, entries, ends = whole
    path = tmp_path / "000001.rpr"
    for end in range(0, len(data), 13):
        path.write_bytes(data[:end])
        assert read_or_refuse(path) == entries[: sum(1 for frame_end in ends if frame_end <= end)]


@pytest.mark.slow
def test_2000_cuts_and_2000_flips_of_a_live_segment_leave_its_whole_entries(
    whole: tuple[bytes, list[Entry], list[int]], tmp_path: Path
) -> None:
    data, entries, ends = whole
    path = tmp_path / "000001.rpr"
    draw = random.Random(21)
    for _ in range(2000):
        end = draw.randrange(len(data))
        path.write_bytes(data[:end])
        assert read_or_refuse(path) == entries[: sum(1 for frame_end in ends if frame_end <= end)]
    flip_bits(whole, path, draw, 2000)


def test_a_flipped_bit_ends_the_stream_at_its_frame(
    whole: tuple[bytes, list[Entry], list[int]], tmp_path: Path
) -> None:
    flip_bits(whole, tmp_path / "000001.rpr", random.Random(20), 300)


def flip_bits(whole: tuple[bytes, list[Entry], list[int]], path: Path, draw: random.Random, num_flips: int) -> None:
    data, entries, ends = whole
    for _ in range(num_flips):
        bit = draw.randrange(len(data) * 8)
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert read_or_refuse(path) == entries[: sum(1 for frame_end in ends if frame_end <= bit // 8)]


def test_random_damage_never_yields_a_wrong_entry(whole: tuple[bytes, list[Entry], list[int]], tmp_path: Path) -> None:
    """Stretches overwritten, zeroed, removed, doubled or exchanged: what is read is a prefix of what was written."""
    data, entries, _ = whole
    path = tmp_path / "000001.rpr"
    draw = random.Random(4)
    num_shortened = 0
    for _ in range(400):
        begin = draw.randrange(len(data))
        end = min(len(data), begin + draw.choice([1, 2, 8, 100, 1000]))
        replacement = draw.choice(
            [draw.randbytes(end - begin), bytes(end - begin), b"", data[begin:end] * 2, data[end:] + data[begin:end]]
        )
        path.write_bytes(data[:begin] + replacement + data[end:])
        found = read_or_refuse(path)
        assert found == entries[: len(found)]
        num_shortened += len(found) < len(entries)
    assert num_shortened > 250


def test_a_length_is_bounded_before_it_is_believed(whole: tuple[bytes, list[Entry], list[int]], tmp_path: Path) -> None:
    data, entries, ends = whole
    path = tmp_path / "000001.rpr"
    for length, reason in (
        (0xFFFFFFFF, "67108864 are possible"),
        (0, "claims 0 bytes"),
        (1 << 20, "runs past the end"),
    ):
        path.write_bytes(data[: ends[4]] + length.to_bytes(4, "little") + data[ends[4] + 4 :])
        found, recording = read(path)
        assert found == entries[:5]
        assert reason in recording.notices[0].text


def test_a_frame_that_holds_no_entry_ends_the_stream(tmp_path: Path) -> None:
    for number, body in enumerate([b"\xc1", b"\x00", b"\x94\x00\x00\x91\x01\x90", b"\x00\x00"], start=1):
        folder = tmp_path / str(number)
        folder.mkdir()
        file = FramedFile(segment_path(folder, 1), SEGMENT_MAGIC, header().to_map())
        offset = file.num_bytes
        file.append([body])
        file.close()
        found, recording = read(folder)
        assert found == []
        assert (recording.notices[0].kind, recording.notices[0].offset) == (NoticeKind.TORN, offset)
        assert "holds no entry" in recording.notices[0].text


def read_or_refuse(path: Path) -> list[Entry]:
    """The entries; none where the header itself is refused."""
    try:
        found, recording = read(path)
    except RecordingError:
        return []
    if not (recording.is_complete and recording.is_closed):
        assert recording.notices, "a loss is silent"
    return found
