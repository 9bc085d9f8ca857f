"""fsck finds any changed byte and says what is lost; repair copies the rest, aside, with its holes told."""

import random
from pathlib import Path

import pytest

from engine.core.vocabulary import Entry, RecordingClosed, RecordingGap
from recorder.errors import RecordingError
from recorder.format import segment_paths
from recorder.fsck import examine
from recorder.reader import Recording
from recorder.repair import CAUSE, repair
from recorder.sealing import seal
from tests.recorder.samples import read, record, step_entry
from tests.recorder.test_vault import write

ENTRIES = [step_entry(sequence, num_rows=4) for sequence in range(60)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Several segments, all but the last sealed, with vaults."""
    folder = write(tmp_path / "run", record_content=True, max_segment_bytes=4000)
    for path in segment_paths(folder)[:-1]:
        seal(path)
    return folder


def test_a_sound_recording_is_sound_and_every_file_is_examined(folder: Path) -> None:
    examination = examine(folder)
    assert examination.is_sound, examination
    assert sorted(file.path for file in examination.files) == sorted(folder.iterdir())
    assert sum(file.num_records for file in examination.files if file.path.suffix != ".vault") == 41


def test_any_changed_byte_of_any_file_is_found(folder: Path) -> None:
    draw = random.Random(8)
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for position in [0, len(data) - 1, *(draw.randrange(len(data)) for _ in range(30))]:
            path.write_bytes(data[:position] + bytes([data[position] ^ 1 << draw.randrange(8)]) + data[position + 1 :])
            assert not examine(folder).is_sound, (path, position)
        path.write_bytes(data)
    assert examine(folder).is_sound


def test_a_repaired_copy_holds_what_could_be_read_and_is_sound(folder: Path, tmp_path: Path) -> None:
    whole, _ = read(folder)
    second, last = segment_paths(folder)[1], segment_paths(folder)[-1]
    inside = read(second)[0]
    data = second.read_bytes()
    second.write_bytes(data[: len(data) // 2])
    last.write_bytes(last.read_bytes()[:-3])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = repair(folder, tmp_path / "repaired")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, "the original was touched"
    found, recording = read(tmp_path / "repaired")
    kept = [entry for entry in found if not isinstance(entry.event, RecordingGap)]
    assert kept == [entry for entry in whole if entry not in inside and not isinstance(entry.event, RecordingClosed)]
    (gap,) = [entry.event for entry in found if isinstance(entry.event, RecordingGap)]
    assert gap == RecordingGap(inside[0].sequence, len(inside), CAUSE)
    assert recording.header.origin == "repaired"
    assert (done.num_entries, done.num_gaps) == (len(kept), 1)
    examination = examine(tmp_path / "repaired")
    assert not any(file.faults for file in examination.files)
    assert len(examination.notices) == 3, "the segment, the gap, and the end that nobody knows"
    assert Recording.open(tmp_path / "repaired").contents().prompts == Recording.open(folder).contents().prompts


def test_a_repair_never_writes_into_what_is_there(folder: Path) -> None:
    with pytest.raises(RecordingError, match="exists"):
        repair(folder, folder)


def test_random_damage_is_repaired_to_a_subset_of_what_was(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", ENTRIES, max_segment_bytes=9000)
    for path in segment_paths(folder)[::2]:
        seal(path)
    known: dict[int, Entry] = {entry.sequence: entry for entry in read(folder)[0]}
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    draw = random.Random(3)
    for number in range(25):
        path = draw.choice(sorted(whole))
        data = bytearray(whole[path])
        for _ in range(3):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])
        try:
            repair(folder, tmp_path / str(number))
        except RecordingError:
            assert len(whole) == 1
        found, _ = read(tmp_path / str(number))
        kept = [entry for entry in found if not isinstance(entry.event, RecordingGap)]
        assert all(known[entry.sequence] == entry for entry in kept)
        num_missing = sum(entry.event.num_entries for entry in found if isinstance(entry.event, RecordingGap))
        assert len(kept) + num_missing <= len(known)
        path.write_bytes(whole[path])
