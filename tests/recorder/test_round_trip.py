"""What is recorded is read back: every kind, from every version that may have written it."""

import stat
from pathlib import Path

import msgpack
import pytest

from engine.core.events import CancelCause, RequestCancelled
from engine.core.limits import Limits
from engine.core.vocabulary import KINDS, Entry, RecordingClosed, UnknownRecord, entry_to_array
from recorder.errors import NewerFormat, NotARecording, RecordingError, RecordingUnwritable
from recorder.format import FORMAT_VERSION, SEGMENT_MAGIC, segment_path
from recorder.frames import FramedFile
from recorder.reader import Recording
from tests.recorder.samples import SALT, header, one_of_every_kind, read, record, recorder, small_entries


def test_every_kind_comes_back_as_it_was(tmp_path: Path) -> None:
    entries = one_of_every_kind()
    kinds = {type(entry.event) for entry in entries} | {type(item) for entry in entries for item in entry.decisions}
    assert kinds == {record_type for kind, record_type in KINDS.items() if kind < 200}, "the sample lacks a kind"
    found, recording = read(record(tmp_path / "run", entries))
    assert found[:-1] == entries
    for entry, original in zip(found, entries, strict=False):
        assert [type(item) for item in entry.decisions] == [type(item) for item in original.decisions]
    assert found[-1].event == RecordingClosed("test")
    assert found[-1].sequence == len(entries)
    assert recording.notices == []
    assert recording.is_complete
    assert recording.is_closed


def test_a_pass_over_the_entries_can_be_repeated(tmp_path: Path) -> None:
    recording = Recording.open(record(tmp_path / "run", small_entries(20)))
    assert list(recording.entries()) == list(recording.entries())


def test_the_header_tells_how_the_run_was_set_up(tmp_path: Path) -> None:
    found = Recording.open(record(tmp_path / "run", [])).header
    assert found.salt == SALT
    assert Limits.from_dict(found.limits) == Limits()
    assert found.environment == {"backend": "scripted"}
    assert found.starts_fresh
    assert (found.segment_number, found.first_sequence, found.previous_segment_digest) == (1, 0, b"")
    assert found.created_wall_ns > found.created_now_ns > 0
    assert found.schema[5] == ["DrainRequested", []]
    assert found.schema[2] == ["RequestCancelled", list(RequestCancelled._fields)]
    assert found.structures["Entry"] == ["sequence", "now_ns", "event", "decisions"]


def test_a_segment_can_be_opened_alone(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", small_entries(5))
    assert len(read(segment_path(folder, 1))[0]) == 6


def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    folder = record(tmp_path / "records" / "run", small_entries(3), record_content=True)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"000001.rpr": 0o600, "000001.vault": 0o600}


def test_a_newer_writers_additions_are_read_past(tmp_path: Path) -> None:
    values = header(format_version=FORMAT_VERSION + 1).to_map() | {"added_later": [1, 2]}
    file = FramedFile(segment_path(tmp_path, 1), SEGMENT_MAGIC, values)
    known = Entry(0, 5, RequestCancelled(7, CancelCause.CLIENT), ())
    sequence, now_ns, event, decisions = entry_to_array(known)
    file.append([msgpack.packb((sequence, now_ns, (*event, "added", 3), decisions, "added to Entry"))])
    file.append([msgpack.packb((1, 6, (99, "new", [1, 2]), ((199, b"x"),)))])
    file.close()
    found, recording = read(tmp_path)
    assert found == [known, Entry(1, 6, UnknownRecord(99, ("new", (1, 2))), (UnknownRecord(199, (b"x",)),))]
    assert recording.is_complete


def test_a_format_that_would_be_misread_is_refused(tmp_path: Path) -> None:
    values = header(min_reader_version=FORMAT_VERSION + 1).to_map()
    FramedFile(segment_path(tmp_path, 1), SEGMENT_MAGIC, values).close()
    with pytest.raises(NewerFormat, match="use a newer reprise"):
        Recording.open(tmp_path)


def test_an_encrypted_recording_is_refused_by_name(tmp_path: Path) -> None:
    FramedFile(segment_path(tmp_path, 1), SEGMENT_MAGIC, header(cipher="aes-256-gcm").to_map()).close()
    with pytest.raises(RecordingError, match="aes-256-gcm"):
        Recording.open(tmp_path)


def test_what_is_no_recording_is_refused_with_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not exist"):
        Recording.open(tmp_path / "nothing")
    with pytest.raises(RecordingError, match="holds no recording"):
        Recording.open(tmp_path)
    other = tmp_path / "notes.txt"
    other.write_text("hello, this is text")
    with pytest.raises(NotARecording, match="begins with 68 65 6c"):
        Recording.open(other)
    empty = tmp_path / "000001.rpr"
    empty.touch()
    with pytest.raises(NotARecording, match="is empty"):
        Recording.open(tmp_path)


def test_a_folder_of_runs_is_refused_with_their_names(tmp_path: Path) -> None:
    record(tmp_path / "monday", [])
    record(tmp_path / "tuesday", [])
    with pytest.raises(RecordingError, match=r"holds 2 runs.*monday, tuesday"):
        Recording.open(tmp_path)


def test_a_vault_is_not_taken_for_a_segment(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", [], record_content=True)
    with pytest.raises(RecordingError, match="is a vault"):
        Recording.open(folder / "000001.vault")


def test_two_recorders_cannot_share_a_folder(tmp_path: Path) -> None:
    first = recorder(tmp_path / "run")
    with pytest.raises(RecordingUnwritable, match="another process records"):
        recorder(tmp_path / "run")
    first.close("done")
    recorder(tmp_path / "run").close("done")


def test_a_folder_that_cannot_be_written_is_said_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordingUnwritable, match="cannot record in"):
        recorder(tmp_path / "file" / "run")


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "run")
    writer.record(small_entries(1)[0])
    writer.close("first")
    writer.close("second")
    writer.record(small_entries(2)[1])
    found, _ = read(tmp_path / "run")
    assert [entry.event for entry in found[1:]] == [RecordingClosed("first")]
    assert (writer.num_entries, writer.num_gap_entries) == (1, 1)
