"""What recording costs: the engine thread per entry, and the writer thread per entry with encoding and writing."""

import statistics
import tempfile
from pathlib import Path

from engine.clock import SystemClock
from engine.core.vocabulary import Entry
from recorder.disk_sync import DiskSync
from recorder.keyframe_demand import KeyframeDemand
from recorder.segments import SegmentWriter
from tests.recorder.samples import header, recorder, step_entry

NUM_ENTRIES = 8_000
BATCH_ENTRIES = 4  # in one append: what gathers while the writer thread waits for its turn
MAX_SEGMENT_BYTES = 64 << 20
MAX_AGE_NS = 600 * 10**9


def measure_record_us(entries: list[Entry]) -> float:
    """Median µs of `Recorder.record`, called as the engine thread does, the writer thread awake beside it."""
    clock = SystemClock()
    costs: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        writer = recorder(Path(folder) / "run")
        for entry in entries:
            before = clock.now_ns()
            writer.record(entry)
            costs.append(clock.now_ns() - before)
        writer.close("measured")
        assert writer.num_gap_entries == 0
    return statistics.median(costs) / 1_000


def measure_write(entries: list[Entry]) -> tuple[float, float]:
    """Median µs per entry to encode and append it, and bytes per entry, without a second thread."""
    clock = SystemClock()
    costs: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        disk = DiskSync(1000)
        segments = SegmentWriter(Path(folder), header(), clock, disk, KeyframeDemand(), MAX_SEGMENT_BYTES, MAX_AGE_NS)
        num_header_bytes = segments.num_bytes
        for first in range(0, len(entries), BATCH_ENTRIES):
            before = clock.now_ns()
            segments.append(entries[first : first + BATCH_ENTRIES])
            costs.append(clock.now_ns() - before)
        num_bytes = segments.num_bytes - num_header_bytes
        segments.close("measured")
        disk.close(10)
    return statistics.median(costs) / BATCH_ENTRIES / 1_000, num_bytes / len(entries)


def report() -> list[str]:
    lines = ["recorder cost: an entry is a decode step's result, tokens and next plan (goal: 1 µs per decision)"]
    for num_rows in (1, 16, 64, 256):
        entries = [step_entry(sequence, num_rows) for sequence in range(NUM_ENTRIES * 4 // (4 + num_rows))]
        record_us = measure_record_us(entries)
        write_us, num_bytes = measure_write(entries)
        lines.append(
            f"  {num_rows:4d} rows   record() {record_us:6.2f} µs   encode and write {write_us:7.1f} µs "
            f"({1e6 / write_us:8,.0f} entries/s, {num_bytes:6,.0f} bytes each)"
        )
    return lines
