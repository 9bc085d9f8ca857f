"""The index of a recording: the same however it came to be, and gone without loss."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted, RequestFinished, RequestPreempted, StepPlanned, TokensEmitted
from engine.core.events import StepCompleted
from engine.core.vocabulary import Entry, RecordingGap
from recorder.reader import Recording
from replay.figures import read_timeline, request_values
from replay.index.indexer import Indexer
from replay.index.recording_index import RecordingIndex
from replay.index.sink import Sink
from replay.lives import Run
from tests.replay.recorded_runs import LIMITS, entries_of, mixed_load, record_run, rewrite

TABLES = (
    "lives",
    "requests",
    "steps",
    "slices",
    "decisions",
    "preemptions",
    "marks",
    "block_events",
    "keyframes",
    "reasons",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    limits = replace(LIMITS, num_kv_blocks=20, swap_space_blocks=12)
    folder = tmp_path_factory.mktemp("index") / "run"
    return record_run(folder, mixed_load(40, seed=5), limits=limits, keyframe_every=60, record_content=False)


def rows_of(index: RecordingIndex) -> dict[str, list[tuple[Any, ...]]]:
    """Of every table, without the ids, which depend on when an open row was told again."""
    with_ids = ("slices", "marks", "block_events")
    found = {}
    with index.connect() as database:
        for table in TABLES:
            rows = [tuple(row)[table in with_ids :] for row in database.execute(f"SELECT * FROM {table}")]
            found[table] = sorted(rows, key=repr)
    return found


def indexed(path: Path, folder: Path) -> RecordingIndex:
    index = RecordingIndex(path, folder)
    index.update()
    return index


def test_two_who_index_in_turns_do_not_miss_what_the_other_has_read(run: Path, tmp_path: Path) -> None:
    (segment,) = run.glob("*.rpr")
    data = segment.read_bytes()
    growing = tmp_path / "run"
    growing.mkdir()
    (growing / segment.name).write_bytes(data[: len(data) // 7])
    both = [RecordingIndex(growing, tmp_path / "shared") for _ in range(2)]
    for part in range(1, 8):
        (growing / segment.name).write_bytes(data[: len(data) * part // 7])
        both[part % 2].update()
    assert rows_of(both[0]) == rows_of(indexed(run, tmp_path / "whole"))


def test_the_index_is_the_same_however_often_the_recording_grew_in_between(run: Path, tmp_path: Path) -> None:
    whole = indexed(run, tmp_path / "whole")
    (segment,) = run.glob("*.rpr")
    data = segment.read_bytes()
    growing = tmp_path / "run"
    growing.mkdir()
    sizes = [len(data) * part // 13 for part in range(2, 13)] + [len(data)]
    kept: RecordingIndex | None = None
    num_read: list[int] = []
    for size in sizes:
        (growing / segment.name).write_bytes(data[:size])
        kept = kept or RecordingIndex(growing, tmp_path / "kept")
        num_read.append(kept.update())
        again = indexed(growing, tmp_path / "again")
        assert rows_of(kept) == rows_of(again)
        assert rows_of(again) == rows_of(indexed(growing, tmp_path / f"at once {size}"))
    assert rows_of(again) == rows_of(whole)
    assert again.update() == 0
    assert sum(num_read) < 1.2 * len(entries_of(run))  # it went on, each time, and did not begin anew


class _RequestRows(Sink):
    """Keeps nothing but the rows of requests, in the order in which they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    def add(self, table: str, *values: Any) -> None:
        if table == "requests":
            self.told.append(values)


def test_an_open_request_is_told_again_only_when_something_of_it_changed(run: Path) -> None:
    (life,) = Run.open(run).lives
    sink = _RequestRows()
    indexer = Indexer(sink)
    indexer.begin_life(1, life)
    draw = random.Random(7)
    for entry in life.entries(0, keyframes=True):
        indexer.read(entry)
        if draw.random() < 0.2:
            indexer.tell_open()
            num_told = len(sink.told)
            indexer.tell_open()
            assert len(sink.told) == num_told
    assert len(sink.told) > len({row[1] for row in sink.told})  # some changed while they lived
    assert len(sink.told) == len(set(sink.told))


def test_the_index_is_the_same_wherever_it_was_committed_in_between(run: Path, tmp_path: Path) -> None:
    (segment,) = run.glob("*.rpr")
    data = segment.read_bytes()
    growing = tmp_path / "run"
    growing.mkdir()
    kept: RecordingIndex | None = None
    for size in sorted(random.Random(11).sample(range(len(data) // 20, len(data)), 12)):
        (growing / segment.name).write_bytes(data[:size])
        kept = kept or RecordingIndex(growing, tmp_path / "kept")
        kept.update()
        assert rows_of(kept) == rows_of(indexed(growing, tmp_path / f"at once {size}"))


def test_a_recording_that_lost_its_end_is_indexed_anew(run: Path, tmp_path: Path) -> None:
    (segment,) = run.glob("*.rpr")
    copy = tmp_path / "run"
    copy.mkdir()
    (copy / segment.name).write_bytes(segment.read_bytes())
    indexed(copy, tmp_path / "index")
    (copy / segment.name).write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    assert rows_of(indexed(copy, tmp_path / "index")) == rows_of(indexed(copy, tmp_path / "new"))


def test_a_file_that_is_no_database_is_begun_anew(run: Path, tmp_path: Path) -> None:
    index = indexed(run, tmp_path)
    rows = rows_of(index)
    index.path.write_bytes(b"no database at all" * 100)
    for beside in tmp_path.glob("*-wal"):
        beside.unlink()
    assert rows_of(indexed(run, tmp_path)) == rows


def test_requests_have_the_figures_that_show_tells(run: Path, tmp_path: Path) -> None:
    timeline = read_timeline(Run.open(run))
    with indexed(run, tmp_path).connect() as database:
        rows = {row["number"]: row for row in database.execute("SELECT * FROM requests")}
    assert rows.keys() == timeline.spans.keys()
    for number, span in timeline.spans.items():
        row, told = rows[number], request_values(span)
        assert [row[f"{name}_ms"] for name in ("queue", "ttft", "tpot", "e2e")] == [
            told[f"{name}_ms"] for name in ("queue", "ttft", "tpot", "e2e")
        ]
        assert row["reason"] == told["outcome"]
        assert row["output_tokens"] == told["num_output_tokens"]
        assert row["preemptions"] == told["num_preemptions"]
        assert row["itl_max_ms"] == (max(span.itl_ns) / 1e6 if span.itl_ns else None)


def test_steps_decisions_and_blocks_are_those_of_the_entries(run: Path, tmp_path: Path) -> None:
    entries = entries_of(run)
    planned = [decision for entry in entries for decision in entry.decisions if isinstance(decision, StepPlanned)]
    told = [
        (entry.sequence, at, type(decision).__name__)
        for entry in entries
        for at, decision in enumerate(entry.decisions)
        if not isinstance(decision, StepPlanned | TokensEmitted)
    ]
    with indexed(run, tmp_path).connect() as database:
        steps = database.execute("SELECT * FROM steps ORDER BY step").fetchall()
        decisions = database.execute("SELECT sequence, at, kind FROM decisions ORDER BY sequence, at").fetchall()
        freed = database.execute("SELECT count(*) FROM block_events WHERE kind = 'freed'").fetchone()[0]
        open_rows = database.execute("SELECT count(*) FROM slices WHERE is_open").fetchone()[0]
        emitted = database.execute("SELECT sum(tokens) FROM slices WHERE kind = 'decode'").fetchone()[0]
    assert [(row["step"], row["rows"], row["free_blocks"]) for row in steps] == [
        (plan.step, len(plan.rows), plan.num_blocks_free) for plan in planned
    ]
    completed = [entry.event for entry in entries if isinstance(entry.event, StepCompleted)]
    assert [row["execute_ns"] for row in steps] == [event.execute_ns for event in completed]
    assert [tuple(row) for row in decisions] == told
    assert freed >= sum(  # a decode that got its block in a pass and gave way in the same is told of nowhere
        decision.num_blocks_freed - 1
        for entry in entries
        for decision in entry.decisions
        if isinstance(decision, RequestFinished | RequestPreempted)
    )
    assert open_rows == 0
    prefills = _num_tokens_emitted(entries) - emitted
    assert 0 < prefills <= sum(isinstance(d, RequestAdmitted) for entry in entries for d in entry.decisions)


def _num_tokens_emitted(entries: list[Entry]) -> int:
    return sum(
        len(decision.rows) for entry in entries for decision in entry.decisions if isinstance(decision, TokensEmitted)
    )


def test_behind_a_gap_blocks_are_known_again_at_the_next_keyframe(run: Path, tmp_path: Path) -> None:
    keyframes = [
        entry.sequence
        for entry in Recording.open(run).entries(keyframes=True)
        if type(entry.event).__name__ == "CoreKeyframe"
    ]
    first, second = keyframes[0] + 5, keyframes[1] - 5

    def with_gap(entries: list[Entry]) -> list[Entry]:
        everything = list(Recording.open(run).entries(keyframes=True))
        gap = Entry(first, 0, RecordingGap(first, second - first, "test"), ())
        before = [entry for entry in everything if entry.sequence < first]
        return [*before, gap._replace(now_ns=before[-1].now_ns), *[e for e in everything if e.sequence >= second]]

    with_hole = rewrite(run, tmp_path / "run", with_gap)
    with indexed(with_hole, tmp_path / "a").connect() as cut, indexed(run, tmp_path / "b").connect() as whole:
        assert cut.execute("SELECT count(*) FROM marks WHERE kind = 'gap'").fetchone()[0] == 1
        query = "SELECT block, sequence, kind, request FROM block_events WHERE kind != 'written' AND sequence"
        assert not cut.execute(f"{query} BETWEEN {first} AND {keyframes[1] - 1}").fetchall()
        behind = f"{query} >= {keyframes[1]} ORDER BY sequence, id"
        known = [tuple(row) for row in cut.execute(behind)]
        assert known == [tuple(row) for row in whole.execute(behind)]
        assert known
