"""What cannot be kept is counted, stands in the recording as a gap, and never reaches the engine as an error."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.core.events import StepFailed
from engine.core.vocabulary import Entry, RecordingClosed, RecordingGap
from recorder.continuity import NoticeKind
from recorder.errors import RecordingUnwritable
from recorder.format import segment_path
from tests.recorder.samples import read, recorder, small_entries, step_entry, wait_until_written


class GateClock(SystemClock):
    """A clock whose reading holds the writer thread up while the gate is shut, as a slow disk would."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.writer_waits = threading.Event()

    def now_ns(self) -> int:
        if threading.current_thread().name == "recorder" and not self.gate.is_set():
            self.writer_waits.set()
            self.gate.wait()
        return super().now_ns()

    def shut(self) -> None:
        self.writer_waits.clear()
        self.gate.clear()


def test_a_full_queue_costs_a_counted_gap(tmp_path: Path) -> None:
    clock = GateClock()
    writer = recorder(tmp_path / "run", clock=clock, max_queue_entries=10)
    entries = small_entries(100)
    clock.shut()
    writer.record(entries[0])
    assert clock.writer_waits.wait(10), "the writer thread reads the clock before each append"
    for entry in entries[1:50]:
        writer.record(entry)  # 10 of them find a place
    assert writer.num_gap_entries == 39
    clock.gate.set()
    wait_until_written(writer, 11)
    clock.shut()
    writer.record(entries[50])
    assert clock.writer_waits.wait(10)
    for entry in entries[51:64]:
        writer.record(entry)
    clock.gate.set()
    writer.close("done")
    found, recording = read(tmp_path / "run")
    cause = "the recorder's queue was full (10 entries)"
    assert found[:-1] == [
        *entries[:11],
        Entry(11, entries[49].now_ns, RecordingGap(11, 39, cause), ()),
        *entries[50:61],
        Entry(61, entries[63].now_ns, RecordingGap(61, 3, cause), ()),
    ]
    assert isinstance(found[-1].event, RecordingClosed)
    assert found[-1].sequence == 64
    assert (writer.num_entries, writer.num_gap_entries) == (22, 42)
    assert [notice.kind for notice in recording.notices] == [NoticeKind.GAP, NoticeKind.GAP]
    assert [(gap.first_sequence, gap.num_entries) for gap in recording.missing] == [(11, 39), (61, 3)]
    assert not recording.is_complete


def test_an_entry_that_cannot_be_encoded_costs_itself_only(tmp_path: Path) -> None:
    entries = small_entries(5)
    entries[2] = Entry(2, 20, StepFailed(1, "a lone surrogate \ud800"), ())
    writer = recorder(tmp_path / "run")
    for entry in entries:
        writer.record(entry)
    writer.close("done")
    found, _ = read(tmp_path / "run")
    assert [entry.sequence for entry in found] == [0, 1, 2, 3, 4, 5]
    gap = found[2].event
    assert isinstance(gap, RecordingGap)
    assert (gap.first_sequence, gap.num_entries) == (2, 1)
    assert "surrogates not allowed" in gap.cause
    assert writer.num_gap_entries == 1


def test_a_disk_without_space_costs_a_gap_until_there_is_some(tmp_path: Path) -> None:
    """A real limit of the kernel on the size of files: writing fails with EFBIG in mid-frame, then works again."""
    told = in_subprocess(
        """
        import resource
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        writer = recorder(folder, sync_interval_ms=10)
        for sequence in range(200):
            writer.record(step_entry(sequence))
            if sequence < 20:  # these fit, each in an append of its own
                wait_until(lambda: writer.num_entries == sequence + 1)
        wait_until(lambda: writer.num_entries + writer.num_gap_entries == 200)
        told["after_failure"] = [writer.num_entries, writer.num_gap_entries, writer.last_error]
        size = writer.num_bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(lambda: writer.num_bytes > size)  # the gap is written without waiting for an entry
        for sequence in range(200, 210):
            writer.record(step_entry(sequence))
        writer.close("done")
        told["at_end"] = [writer.num_entries, writer.num_gap_entries]
        """,
        tmp_path / "run",
    )
    num_kept, num_lost, error = told["after_failure"]
    assert 20 <= num_kept < 40
    assert num_kept + num_lost == 200
    assert "errno 27" in error
    assert told["at_end"] == [num_kept + 10, num_lost]
    found, recording = read(tmp_path / "run")
    kept = [entry for entry in found if not isinstance(entry.event, RecordingGap | RecordingClosed)]
    assert kept == [step_entry(sequence) for sequence in [*range(num_kept), *range(200, 210)]]
    gaps = [entry.event for entry in found if isinstance(entry.event, RecordingGap)]
    assert [(gap.first_sequence, gap.num_entries) for gap in gaps] == [(num_kept, num_lost)]
    assert [notice.kind for notice in recording.notices] == [NoticeKind.GAP]
    times = [entry.now_ns for entry in found[:-1]]
    assert times == sorted(times), "a gap bears the time of the last entry it stands for"


def test_a_segment_that_became_unwritable_is_followed_by_another(tmp_path: Path) -> None:
    """The file's descriptor is exchanged for /dev/full: writing fails, and so does taking it back."""
    writer = recorder(tmp_path / "run", sync_interval_ms=60_000)  # a sync would see it first
    writer.record(small_entries(1)[0])
    wait_until_written(writer, 1)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._segments._file._descriptor)
    os.close(full)
    writer.record(small_entries(2)[1])
    writer.record(small_entries(3)[2])
    writer.close("done")
    found, recording = read(tmp_path / "run")
    assert writer.num_entries + writer.num_gap_entries == 3
    assert writer.num_gap_entries >= 1
    gap = found[1].event
    assert isinstance(gap, RecordingGap)
    assert gap.cause == "No space left on device (errno 28)"
    assert gap.num_entries == writer.num_gap_entries
    assert len(recording.segments) == 2
    assert [notice.kind for notice in recording.notices] == [NoticeKind.GAP]
    assert recording.is_closed


def test_a_killed_process_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", program("", tmp_path / "run") + KILL_ME], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        num_appended = [int(process.stdout.readline()) for _ in range(200)][-1]
        process.kill()
    assert process.wait(10) == -9
    found, recording = read(tmp_path / "run")
    assert len(found) >= num_appended > 0
    assert found == [step_entry(sequence) for sequence in range(len(found))]
    assert [notice.kind for notice in recording.notices] in (
        [NoticeKind.NOT_CLOSED],
        [NoticeKind.TORN, NoticeKind.NOT_CLOSED],  # killed within a write
    )


KILL_ME = """
writer = recorder(folder, max_segment_bytes=50_000)
for sequence in range(10**9):
    writer.record(step_entry(sequence))
    print(writer.num_entries, flush=True)
    time.sleep(0.0005)
"""


def program(body: str, folder: Path) -> str:
    return f"""
import json, sys, time
from pathlib import Path
from tests.recorder.samples import recorder, step_entry

def wait_until(holds):
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in 10 s"
        time.sleep(0.002)

folder, told = Path({str(folder)!r}), {{}}
{textwrap.dedent(body)}
"""


def in_subprocess(body: str, folder: Path) -> dict[str, Any]:
    """Run `body`, whose limits shall not touch this process; returns what it told."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program(body, folder) + "print(json.dumps(told))"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("removed", ["the segment", "the folder"])
def test_what_somebody_removes_under_the_recorder_is_followed_by_a_new_segment(tmp_path: Path, removed: str) -> None:
    run = tmp_path / "run"
    writer = recorder(run, sync_interval_ms=10)
    writer.record(step_entry(0))
    wait_until_written(writer, 1)
    shutil.rmtree(run) if removed == "the folder" else segment_path(run, 1).unlink()
    for sequence in itertools.count(1):
        writer.record(step_entry(sequence))
        assert writer.wait_until_settled(sequence, 10)
        if writer.segment_number > 1:
            break
        time.sleep(0.01)
    assert "somebody has removed the file under way" in writer.last_error
    with pytest.raises(RecordingUnwritable, match="another process records"):
        recorder(run)
    writer.close("done")
    assert writer.num_gap_entries == 0, "all that came was taken; what was in the file went with it"
    found, recording = read(run)
    assert [segment.header.segment_number for segment in recording.segments] == [2]
    assert found[-2].sequence == sequence
