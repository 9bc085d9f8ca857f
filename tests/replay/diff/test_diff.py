"""Two recordings side by side: equal only where every record is; else the first difference, and each request's."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from replay.__main__ import main
from replay.diff.alignment import align, renumbered
from replay.diff.side import Side
from tests.golden.make import DIVERGES, GOLDEN
from tests.replay.faults import FaultyRunner, OtherClassRunner, overwrite_a_slot_in_step
from tests.replay.recorded_runs import LIMITS, SALT, changed_decision, entries_of, mixed_load, record_run, rewrite

LOAD = mixed_load(20)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("diff") / "run", LOAD)


def compared(capsys: pytest.CaptureFixture[str], left: Path, right: Path, exit_code: int) -> dict[str, Any]:
    assert main(["diff", str(left), str(right), "--json"]) == exit_code
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert values["exit_code"] == exit_code
    return values


def test_two_runs_of_one_load_are_equal(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = compared(capsys, run, record_run(tmp_path / "again", LOAD), 0)
    assert (values["result"], values["divergences"], values["aligned_by"]) == ("equal", [], "id")
    assert values["entries_alike"] == len(entries_of(run)) - 1  # the last one says that it was closed
    assert {pair["tokens_compared_by"] for pair in values["requests"]} == {"ids"}
    assert main(["diff", str(run), str(run)]) == 0
    assert "diff: equal (" in capsys.readouterr().out


def test_times_alone_do_not_make_a_difference(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = rewrite(run, tmp_path / "later", lambda entries: [it._replace(now_ns=2 * it.now_ns) for it in entries])
    values = compared(capsys, run, later, 0)
    assert values["latencies"][1]["itl_ms"]["p50"] == pytest.approx(2 * values["latencies"][0]["itl_ms"]["p50"])
    assert max(pair["delay_ms"] for pair in values["requests"]) > 0


def test_the_first_record_that_differs_is_told_apart_from_what_was_done(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries, sequence, index = changed_decision(
        entries_of(run), RequestAdmitted, lambda it: it._replace(num_blocks_free=it.num_blocks_free + 1), occurrence=3
    )
    values = compared(capsys, run, rewrite(run, tmp_path / "changed", lambda _: entries), 1)
    (divergence,) = values["divergences"]
    assert (divergence["sequence"], divergence["record_index"]) == (sequence, index)
    assert [item["field"] for item in divergence["differences"]] == ["num_blocks_free"]
    assert values["served_alike"]


def test_the_golden_recording_that_diverges_does_so_from_its_original(capsys: pytest.CaptureFixture[str]) -> None:
    values = compared(capsys, GOLDEN / "format-2", DIVERGES, 1)
    (divergence,) = values["divergences"]
    assert divergence["record"] == "RequestAdmitted"
    assert values["served_alike"]
    assert compared(capsys, GOLDEN / "format-1", GOLDEN / "format-2", 0)["entries_alike"] == 72


def test_another_pool_differs_at_once_and_serves_otherwise_later(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = Limits.from_dict({**LIMITS.to_dict(), "num_kv_blocks": 60})
    other = record_run(tmp_path / "wide", LOAD, limits=wide)
    values = compared(capsys, run, other, 1)
    figures, deeds, *_ = values["divergences"]
    assert figures["sequence"] == 0 < deeds["sequence"]
    assert figures["likely_cause"] == "the same is done, on other figures"
    assert not values["served_alike"]
    assert values["limits"] == {"num_kv_blocks": [24, 60]}
    preemptions = values["decisions"]["RequestPreempted"]
    assert preemptions[0] > preemptions[1] == 0
    assert main(["diff", str(run), str(other)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("DIVERGED (structural) at sequence 0,")
    assert "limit num_kv_blocks: 24 → 60" in shown
    assert f"RequestPreempted {preemptions[0]} → 0" in shown


def test_another_token_is_named_by_request_and_place(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = FaultyRunner(overwrite_a_slot_in_step(12))
    values = compared(capsys, run, record_run(tmp_path / "faulty", LOAD, runner=faulty), 1)
    token = values["divergences"][-1]
    assert token["record"] == "EmittedToken"
    (pair, *_) = [pair for pair in values["requests"] if pair["first_differing_token"] is not None]
    assert token["expected"]["output_index"] == pair["first_differing_token"]
    assert token["expected"]["request"] == pair["left"]["request"]
    assert token["expected"]["token_id"] != token["got"]["token_id"] != -1
    assert token["classification"] == "tokens"


def test_without_contents_digests_tell_tokens_apart(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = record_run(tmp_path / "bare", LOAD, record_content=False)
    values = compared(capsys, run, bare, 0)
    assert {pair["tokens_compared_by"] for pair in values["requests"]} == {"digests"}
    other = record_run(tmp_path / "other", LOAD, record_content=False, runner=OtherClassRunner(24, 4, SALT))
    token = compared(capsys, run, other, 1)["divergences"][-1]
    assert token["expected"]["hidden_digest"] != token["got"]["hidden_digest"]


def test_requests_are_aligned_by_order_where_no_id_is_shared(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def renamed(event: Any) -> Any:
        return event._replace(request_id=f"other-{event.request}") if isinstance(event, RequestArrived) else event

    other = rewrite(run, tmp_path / "renamed", lambda entries: [it._replace(event=renamed(it.event)) for it in entries])
    assert compared(capsys, run, other, 0)["aligned_by"] == "order"


def test_who_came_in_one_of_them_only_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fewer = record_run(tmp_path / "fewer", mixed_load(20)[:15])
    values = compared(capsys, run, fewer, 1)
    assert values["only_left"]
    assert values["only_right"] == []
    assert compared(capsys, fewer, run, 1)["only_right"] == values["only_left"]


def test_records_are_read_under_the_other_sides_numbers(run: Path, tmp_path: Path) -> None:
    """The load in another order of numbers: ids stay, so who is who is known."""
    left = Side(run)
    right = Side(rewrite(run, tmp_path / "shifted", lambda entries: [_shifted(entry) for entry in entries]))
    alignment = align(left, right)
    assert alignment.pairs == tuple((number, number + 100) for number in left.parties)
    numbers = alignment.to_left
    assert [[renumbered(record, numbers) for record in (it.event, *it.decisions)] for it in right.entries()] == [
        [it.event, *it.decisions] for it in left.entries()
    ]
    assert main(["diff", str(run), str(tmp_path / "shifted")]) == 0


def _shifted(entry: Any) -> Any:
    numbers = {number: number + 100 for number in range(100)}
    event, *decisions = (renumbered(record, numbers) for record in (entry.event, *entry.decisions))
    return entry._replace(event=event, decisions=tuple(decisions))


def test_nothing_to_compare_is_no_equality(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = record_run(tmp_path / "empty", [])
    values = compared(capsys, run, empty, 2)
    assert (values["result"], values["reason"]) == ("cannot_compare", f"{empty} holds no request")
    assert "does not exist" in compared(capsys, run, tmp_path / "nowhere", 2)["reason"]


def test_behind_a_hole_nothing_is_called_equal(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holed = rewrite(run, tmp_path / "holed", lambda entries: [*entries[:-6], *entries[-3:]])
    assert "missing" in compared(capsys, holed, holed, 2)["reason"]
