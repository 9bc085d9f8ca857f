"""Sealing: the same entries from a smaller file with an index; nothing is lost by it, and no damage after is silent."""

import random
import tracemalloc
from contextlib import closing
from pathlib import Path

import msgpack
import pytest
import zstandard
from google_crc32c import extend

from engine.core.vocabulary import Entry
from recorder.chunks import CHUNK_RAW_BYTES, COVERED, PREFIX, BadChunk, read_chunk
from recorder.chunks import ENTRIES as ENTRIES_KIND
from recorder.continuity import NoticeKind
from recorder.errors import RecordingError
from recorder.format import segment_path, segment_paths
from recorder.index import Index
from recorder.reader import Recording
from recorder.sealed import SealedReader
from recorder.sealing import SealingFailed, seal, unsealed
from tests.recorder.samples import one_of_every_kind, read, record, small_entries, step_entry

KINDS = one_of_every_kind()
ENTRIES = KINDS + [step_entry(sequence, num_rows=40) for sequence in range(len(KINDS), 420)]


@pytest.fixture(scope="module")
def live_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return segment_path(record(tmp_path_factory.mktemp("live") / "run", ENTRIES), 1).read_bytes()


@pytest.fixture
def live(tmp_path: Path, live_bytes: bytes) -> Path:
    path = tmp_path / "run" / "000001.rpr"
    path.parent.mkdir()
    path.write_bytes(live_bytes)
    return path


def index_of(sealed: Path) -> Index:
    with closing(SealedReader(sealed)) as reader:
        assert reader.index is not None
        return reader.index


def test_a_sealed_segment_reads_as_the_live_one_did(live: Path) -> None:
    expected, _ = read(live)
    size = live.stat().st_size
    sealed = seal(live)
    found, recording = read(live.parent)
    assert found == expected
    assert recording.notices == []
    assert recording.is_closed
    assert [path.name for path in live.parent.iterdir()] == ["000001.rps"]
    assert sealed.stat().st_size < size / 4
    assert sealed.stat().st_mode & 0o777 == 0o600


def test_the_live_segment_can_be_had_back_bit_for_bit_however_it_ended(live: Path, live_bytes: bytes) -> None:
    draw = random.Random(5)
    for end in [len(live_bytes), *(draw.randrange(3_500, len(live_bytes)) for _ in range(12))]:
        live.write_bytes(live_bytes[:end])
        expected, before = read(live)
        sealed = seal(live)
        assert b"".join(unsealed(sealed)) == live_bytes[:end]
        found, after = read(sealed)
        assert found == expected
        assert [notice.kind for notice in after.notices] == [notice.kind for notice in before.notices]
        assert after.missing == before.missing
        sealed.unlink()


def test_its_index_finds_steps_times_and_requests(live: Path) -> None:
    index = index_of(seal(live))
    assert len(index.chunks) == 3
    entries = read(live.parent)[0]
    for number, chunk in enumerate(index.chunks):
        with closing(SealedReader(live.with_suffix(".rps"))) as reader:
            assert msgpack.unpackb(next(reader.bodies(number)), strict_map_key=False)[0] == chunk.first_sequence
        first = next(entry for entry in entries if entry.sequence == chunk.first_sequence)
        assert first.now_ns == chunk.first_now_ns
        assert index.of_sequence(chunk.first_sequence) == index.of_time(chunk.first_now_ns) == number
    assert index.of_step(10**6) is None
    step = index.of_step(300)
    assert step is not None
    assert index.chunks[step].first_sequence <= 300 < index.chunks[step].first_sequence + index.chunks[step].num_entries
    assert index.of_request(1005) == range(len(index.chunks))
    assert index.of_request(3) == range(1)
    assert len(index.of_request(424242)) == 0
    assert index.keyframes == []


@pytest.mark.parametrize("sequence", [1, 200, 209, 210, 419, 420, 9999])
def test_reading_can_begin_anywhere_in_either_form(live: Path, sequence: int) -> None:
    expected = [entry for entry in read(live)[0] if entry.sequence >= sequence]
    for form in ("live", "sealed"):
        recording = Recording.open(live if form == "live" else seal(live))
        assert list(recording.entries(sequence)) == expected
        assert recording.notices == []


def test_a_run_goes_on_from_a_sealed_segment(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", [step_entry(n, num_rows=4) for n in range(60)], max_segment_bytes=4000)
    expected, _ = read(folder)
    for path in segment_paths(folder)[:-1]:
        seal(path)
    record(folder, small_entries(3))
    found, recording = read(folder)
    assert found[: len(expected)] == expected
    assert recording.notices == []
    seal(segment_paths(folder)[-2])
    assert read(folder)[0] == found


def test_a_recording_that_is_sealed_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", [step_entry(n, num_rows=4) for n in range(60)], max_segment_bytes=4000)
    expected, _ = read(folder)
    recording = Recording.open(folder)
    reading = recording.entries()
    found = [next(reading)]
    for path in segment_paths(folder):
        seal(path)
    assert [*found, *reading] == expected
    assert recording.notices == []


def test_a_sealing_that_was_cut_off_leaves_the_live_segment_in_charge(live: Path) -> None:
    live.with_suffix(".part").write_bytes(b"half a sealed segment")
    assert [path.name for path in segment_paths(live.parent)] == ["000001.rpr"]
    seal(live)
    assert [path.name for path in live.parent.iterdir()] == ["000001.rps"]


def test_a_damaged_chunk_costs_its_own_entries_only(live: Path) -> None:
    sealed = seal(live)
    index = index_of(sealed)
    data = bytearray(sealed.read_bytes())
    data[index.chunks[1].offset + 1000] ^= 4
    sealed.write_bytes(data)
    found, recording = read(sealed)
    lost = range(index.chunks[1].first_sequence, index.chunks[2].first_sequence)
    assert [entry.sequence for entry in found] == [n for n in range(421) if n not in lost]
    assert {notice.kind for notice in recording.notices} == {NoticeKind.TORN, NoticeKind.SEQUENCE_HOLE}
    assert [(gap.first_sequence, gap.num_entries) for gap in recording.missing] == [(lost[0], len(lost))]
    with pytest.raises(SealingFailed):
        list(unsealed(sealed))


def test_a_lost_index_costs_no_entry(live: Path) -> None:
    expected, _ = read(live)
    sealed = seal(live)
    with closing(SealedReader(sealed)) as reader:
        footer = reader.footer
    assert footer is not None
    data = bytearray(sealed.read_bytes())
    data[footer.index_offset + 20] ^= 4
    sealed.write_bytes(data)
    found, recording = read(sealed)
    assert found == expected
    assert [notice.kind for notice in recording.notices] == [NoticeKind.INDEX_DAMAGED]
    assert recording.is_complete


def test_a_chunk_cannot_take_anothers_place(live: Path) -> None:
    sealed = seal(live)
    index = index_of(sealed)
    first, second, third = [chunk.offset for chunk in index.chunks[:3]]
    data = sealed.read_bytes()
    sealed.write_bytes(data[:first] + data[second:third] + data[first:second] + data[third:])
    found, recording = read(sealed)
    assert found == [entry for entry in ENTRIES if entry.sequence >= index.chunks[2].first_sequence] + found[-1:]
    assert not recording.is_complete


def test_random_damage_to_a_sealed_segment_never_yields_a_wrong_entry(live: Path) -> None:
    damage_sealed(live, num_cuts=40, num_flips=120)


@pytest.mark.slow
def test_2000_cuts_and_2000_flips_of_a_sealed_segment_never_yield_a_wrong_entry(live: Path) -> None:
    damage_sealed(live, num_cuts=2000, num_flips=2000)


def damage_sealed(live: Path, num_cuts: int, num_flips: int) -> None:
    expected, _ = read(live)
    known = {entry.sequence: entry for entry in expected}
    sealed = seal(live)
    data = sealed.read_bytes()
    draw = random.Random(11)
    for number in range(num_cuts + num_flips):
        damaged = bytearray(data)
        if number < num_cuts:
            del damaged[draw.randrange(len(data)) :]
        else:
            bit = draw.randrange(len(data) * 8)
            damaged[bit // 8] ^= 1 << bit % 8
        sealed.write_bytes(damaged)
        assert_told(sealed, known)


def assert_told(path: Path, known: dict[int, Entry]) -> None:
    """Whatever is read was written, in order; a change is never silent."""
    try:
        found, recording = read(path)
    except RecordingError:
        return
    sequences = [entry.sequence for entry in found]
    assert sequences == sorted(set(sequences))
    assert all(known[entry.sequence] == entry for entry in found)
    assert recording.notices, "a changed byte is silent"
    assert len(found) == len(known) or not recording.is_complete


def test_no_length_takes_memory_that_the_bytes_do_not_have(tmp_path: Path) -> None:
    """Chunks whose checksum is right though they claim more than they hold: a forger's, for damage cannot make them."""
    path, seed = tmp_path / "chunk", 7
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    for num_raw, reason in ((1 << 30, "are possible"), (1000, "of another length"), (0, "of another length")):
        covered = COVERED.pack(0, ENTRIES_KIND, len(bomb), num_raw)
        checksum = extend(extend(seed, covered), bomb)
        path.write_bytes(PREFIX.pack(ENTRIES_KIND, len(bomb), num_raw, checksum) + bomb)
        tracemalloc.start()
        with path.open("rb") as file, pytest.raises(BadChunk, match=reason):
            read_chunk(file, 0, seed, path.stat().st_size)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


def test_chunks_are_of_the_size_they_are_to_be(live: Path) -> None:
    sealed = seal(live)
    bodies = list(SealedReader(sealed))
    assert len(index_of(sealed).chunks) == -(-sum(4 + len(body) for body in bodies) // CHUNK_RAW_BYTES)
