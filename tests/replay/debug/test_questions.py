"""Fifty scripted questions: `debug` answers them as a brute-force scan of the recording does."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.decisions import RequestPreempted, StepPlanned
from replay.debug.session import Session
from replay.time_machine.time_machine import TimeMachine
from tests.replay.debug.brute_force import Scan, first_after, last_before
from tests.replay.recorded_runs import LIMITS, SALT, TimedRunner, mixed_load, record_run

CROWDED = replace(LIMITS, num_kv_blocks=16, swap_space_blocks=10, max_num_seqs=5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debug") / "run"
    runner = TimedRunner(CROWDED.num_kv_blocks, CROWDED.block_size, SALT)
    return record_run(folder, mixed_load(30, seed=11), limits=CROWDED, runner=runner, keyframe_every=70)


@pytest.fixture(scope="module")
def session(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    machine = TimeMachine(run, tmp_path_factory.mktemp("index"))
    yield Session(machine, machine.at_beginning())
    machine.close()


def places(run: Path, count: int, seed: int) -> list[int]:
    """Sequences that planned a step."""
    entries = Scan(run, -1).entries
    planning = [entry.sequence for entry in entries if entry.decisions and isinstance(entry.decisions[-1], StepPlanned)]
    return random.Random(seed).sample(planning, count)


def stand(run: Path, session: Session, sequence: int) -> Scan:
    scan = Scan(run, sequence)
    session.ask(f"goto {scan.step}")
    assert session.state.sequence == sequence
    return scan


def test_the_recording_has_all_that_is_asked_about(run: Path) -> None:
    scan = Scan(run, 10**6)
    assert len(scan.preemptions) > 10
    assert {each.mode for _, _, each in scan.preemptions} == {"swap", "recompute"}
    assert any(each.chain_length > 1 for _, _, each in scan.preemptions)
    assert any(hold[1] == "hit" for holds in scan.holds.values() for hold in holds)


@pytest.mark.parametrize("number", range(8))
def test_who_runs_and_how_many_wait(number: int, run: Path, session: Session) -> None:
    scan = stand(run, session, places(run, 8, seed=1)[number])
    assert [each["request"] for each in session.ask("running").values["running"]] == scan.running
    waiting = [request for request, status in scan.status.items() if status in ("waiting", "preempted")]
    assert sorted(each["request"] for each in session.ask("waiting").values["waiting"]) == sorted(waiting)


@pytest.mark.parametrize("number", range(8))
def test_why_each_of_the_waiting_waits(number: int, run: Path, session: Session) -> None:
    scan = stand(run, session, places(run, 8, seed=2)[number])
    for request, told in scan.told.items():
        answer = session.ask(f"why req-{request}").values
        found = [answer[name] for name in ("reason", "num_blocks_needed", "num_blocks_free", "behind")]
        assert found == [told.reason, told.num_blocks_needed, told.num_blocks_free, told.behind]


@pytest.mark.parametrize("number", range(8))
def test_who_has_a_block_wrote_it_last_and_has_read_it(number: int, run: Path, session: Session) -> None:
    scan = stand(run, session, places(run, 8, seed=3)[number])
    for block in range(CROWDED.num_kv_blocks):
        answer = session.ask(f"block {block}").values
        owners = sorted(request for request, table in scan.tables.items() if block in table)
        assert list(answer["owners"]) == owners
        writer = answer["last_writer"]
        assert (writer and (writer["request"], writer["step"])) == scan.last_write(block)
        readers = [tuple(each.values()) for each in answer["readers"]]
        assert readers == scan.readers(block)


@pytest.mark.parametrize("number", range(8))
def test_who_was_preempted_for_whom_through_which_chain(number: int, run: Path, session: Session) -> None:
    scan = stand(run, session, places(run, 8, seed=4)[number])
    for request in scan.status:
        own = [(at, each) for _, at, each in scan.preemptions if each.request == request]
        answer = session.ask(f"preempted req-{request}").values["preemptions"]
        assert [(told["step"], told["beneficiary"], told["reason"], told["mode"]) for told in answer] == [
            (at, each.for_request, each.reason, each.mode) for at, each in own
        ]
        links = [[(link["victim"], link["beneficiary"]) for link in told["links"]] for told in answer]
        assert links == [scan.chain(each) for _, each in own]


@pytest.mark.parametrize("number", range(6))
def test_when_a_requests_status_changed(number: int, run: Path, session: Session) -> None:
    scan = stand(run, session, places(run, 6, seed=5)[number])
    for request, changes in scan.changes.items():
        told = session.ask(f"request req-{request}").values["changes"]
        assert [(each["sequence"], each["status"]) for each in told] == changes


@pytest.mark.parametrize("number", range(6))
def test_where_a_condition_held_next_and_last(number: int, run: Path, session: Session) -> None:
    here = sorted(places(run, 30, seed=6))[8:20:2][number]
    stand(run, session, here)
    session.ask("until 'RequestPreempted' in kinds")
    assert session.state.sequence == first_after(run, here, _has_preempted)
    stand(run, session, here)
    session.ask("reverse-until len(running) == 2 and 'RequestPreempted' not in kinds")
    expected = last_before(run, here, lambda scan: len(scan.running) == 2 and not _has_preempted(scan))
    assert session.state.sequence == expected


@pytest.mark.parametrize("number", range(6))
def test_where_what_is_watched_changed_next(number: int, run: Path, session: Session) -> None:
    here = sorted(places(run, 30, seed=7))[4:16:2][number]
    scan, block = stand(run, session, here), number
    watch = session.ask(f"watch block {block}").values["number"]
    session.ask("continue")
    owners = sorted(_owners(scan, block))
    assert session.state.sequence == first_after(run, here, lambda each: sorted(_owners(each, block)) != owners)
    session.ask(f"delete {watch}")


def _owners(scan: Scan, block: int) -> list[int]:
    return [request for request, table in scan.tables.items() if block in table]


def _has_preempted(scan: Scan) -> bool:
    return any(isinstance(each, RequestPreempted) for each in scan.entries[scan.at].decisions)
