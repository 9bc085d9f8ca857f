"""One request's entries are found by a sealed segment's index: the story is that of all entries."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.events import RequestArrived
from recorder import sealing
from recorder.format import segment_paths
from recorder.reader import Recording
from recorder.request_entries import arrivals_named, entries_about
from recorder.sealing import seal
from replay.lives import Life, Run
from replay.request_story import find_request, story
from tests.replay.recorded_runs import LIMITS, mixed_load, record_run

NUM_REQUESTS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a failing step and of preemptions, its requests one after the other, in chunks of 2 kB."""
    limits = replace(LIMITS, max_num_queued_reqs=1000)
    folder = record_run(tmp_path_factory.mktemp("run") / "run", mixed_load(NUM_REQUESTS), limits=limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "CHUNK_RAW_BYTES", 2_000)
        for path in segment_paths(folder):
            seal(path)
    return folder


def test_a_story_by_the_index_is_the_story_of_all_entries(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_index = [list(story(Run.open(run), request)) for request in range(NUM_REQUESTS)]
    monkeypatch.setattr(Life, "entries_about", lambda life, request: life.entries())
    assert by_index == [list(story(Run.open(run), request)) for request in range(NUM_REQUESTS)]
    assert all(by_index)


def test_only_the_chunks_from_its_arrival_to_its_end_are_read(run: Path) -> None:
    (section,) = Recording.open(run).sections
    entries = list(section.entries())
    num_read = [len(list(entries_about(section, request))) for request in range(NUM_REQUESTS)]
    assert min(num_read) < len(entries) / 4
    assert sum(num_read) < NUM_REQUESTS * len(entries) * 0.8
    assert list(entries_about(section, 10**6)) == []


def test_a_request_is_found_by_its_name_and_by_its_number(run: Path) -> None:
    (section,) = Recording.open(run).sections
    arrivals = [entry.event for entry in section.entries() if isinstance(entry.event, RequestArrived)]
    (seventh,) = [arrived for arrived in arrivals if arrived.request == 7]
    assert list(arrivals_named(section, seventh.request_id)) == [seventh]
    for name in ("7", seventh.request_id):
        assert find_request(Run.open(run), name) == seventh


def test_a_damaged_chunk_is_passed_by(run: Path, tmp_path: Path) -> None:
    (path,) = segment_paths(run)
    (section,) = Recording.open(run).sections
    damaged = tmp_path / "run"
    damaged.mkdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    (damaged / path.name).write_bytes(data)
    (torn,) = Recording.open(damaged).sections
    entries, num_lost = list(section.entries()), 0
    for request in range(NUM_REQUESTS):
        found = list(entries_about(torn, request))
        assert found == [entry for entry in entries if entry in found]
        num_lost += sum(entry not in found for entry in entries_about(section, request))
    assert num_lost > 0
