"""Two recordings on one axis: rows are pairs, the other's times lie on this one's, what differs is told first."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.core.decisions import RequestFinished, RequestPreempted
from engine.protocol import Arrive
from replay.viewer.answers.beside import SIDE_BY_SIDE
from replay.viewer.beside import Beside
from replay.viewer.framing import unframed
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed
from tests.replay.recorded_runs import entries_of, mixed_load, record_run
from tests.replay.viewer.asked import ask_binary
from tests.replay.viewer.conftest import LOADED

Opens = Callable[[Path], Viewed]
NUM_MORE = 3


@pytest.fixture(scope="module")
def opens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opens]:
    opened: list[Viewed] = []

    def opens(path: Path) -> Viewed:
        viewed = Viewed.open(path, SystemClock(), tmp_path_factory.mktemp("index"))
        viewed.index.update()
        viewed.state.state = "ready"
        opened.append(viewed)
        return viewed

    yield opens
    for viewed in opened:
        viewed.states.close()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same load in more blocks, and a few requests more."""
    limits = replace(LOADED, num_kv_blocks=60)
    return record_run(tmp_path_factory.mktemp("other") / "run", mixed_load(60 + NUM_MORE), limits=limits)


@pytest.fixture(scope="module")
def beside(run: Path, narrow: Path, opens: Opens) -> Beside:
    return Beside(opens(run), opens(narrow))


def ask(beside: Beside, name: str, **values: Any) -> Any:
    found = SIDE_BY_SIDE[name](beside, Parameters({key.rstrip("_"): str(value) for key, value in values.items()}))
    return unframed(found) if isinstance(found, bytes) else found


def test_a_recording_beside_itself_differs_nowhere(run: Path, opens: Opens) -> None:
    viewed = opens(run)
    same = Beside(viewed, opens(run))
    told = ask(same, "pairs")
    assert (told["num_differences"], told["num_only_left"], told["num_only_right"], told["shift_ns"]) == (0, 0, 0, 0)
    _, left = ask(same, "timeline", side="left", group="none", rows="0,4096")
    _, right = ask(same, "timeline", side="right", group="none", rows="0,4096")
    _, alone = ask_binary(viewed, "timeline", rows="0,4096")
    for name, array in alone.items():
        assert (left[name] == array).all()
        assert (right[name] == array).all()


def test_rows_are_pairs_and_the_others_own_come_last(beside: Beside) -> None:
    header, _ = ask(beside, "timeline", side="right", group="none", rows="0,4096")
    again, _ = ask(beside, "timeline", side="left", group="none", rows="0,4096")
    assert header["rows"] == again["rows"]
    alone = [row for row in header["rows"] if row["request"] is None]
    assert len(alone) == NUM_MORE == ask(beside, "pairs")["num_only_right"]
    assert header["rows"][-NUM_MORE:] == alone


def test_what_differs_comes_first_in_order_of_time(beside: Beside) -> None:
    told = ask(beside, "pairs")
    times = [one["at_ns"] for one in told["differences"]]
    assert len(times) == told["num_differences"] > 5
    assert times == sorted(times)
    header, _ = ask(beside, "timeline", group="difference", rows="0,4096")
    differing = [row["differs"] for row in header["rows"]]
    assert differing == sorted(differing, reverse=True)
    assert [row["request"] for row in header["rows"]][: len(times)] == [one["request"] for one in told["differences"]]


def test_a_difference_names_the_first_decision_that_is_another(beside: Beside, run: Path, narrow: Path) -> None:
    ends: dict[tuple[Path, int], str] = {}
    for path in (run, narrow):
        for entry in entries_of(path):
            for decision in entry.decisions:
                if isinstance(decision, RequestPreempted | RequestFinished):
                    ends.setdefault((path, decision.request), type(decision).__name__)
    told = {one["request"]: one for one in ask(beside, "pairs")["differences"]}
    preempted = [number for number in told if ends[run, number] == "RequestPreempted"]
    assert preempted
    for number in preempted:
        if ends.get((narrow, number)) == "RequestFinished":
            assert told[number]["left"]["words"].startswith("preempted")
            assert told[number]["right"]["words"].startswith("ended")


def test_the_others_times_lie_on_this_ones_axis(beside: Beside) -> None:
    shift = ask(beside, "pairs")["shift_ns"]
    right = beside.right
    with right.columns(1):
        numbers = right.requests.of("number")
    header, arrays = ask(beside, "timeline", side="right", group="none", rows="0,4096")
    _, alone = ask_binary(right, "timeline", rows="0,4096")
    assert sorted(arrays["from"] - shift) == sorted(alone["from"])
    assert len(header["rows"]) >= len(numbers)


def test_requests_without_a_common_name_are_paired_by_their_order(run: Path, opens: Opens, tmp_path: Path) -> None:
    renamed = [
        (at, message._replace(request_id=f"other-{message.request}") if isinstance(message, Arrive) else message)
        for at, message in mixed_load(60)
    ]
    other = Beside(opens(run), opens(record_run(tmp_path / "renamed", renamed, limits=LOADED)))
    told = ask(other, "pairs")
    assert told["aligned_by"] == "order"
    assert told["num_pairs"] == 60
