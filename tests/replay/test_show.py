"""`reprise show`: what a recording holds, said truly and within a terminal's width."""

import json
from pathlib import Path

import pytest

from engine.core.decisions import RequestFinished, RequestPreempted, StepPlanned, TokensEmitted
from engine.core.events import RequestArrived
from replay.__main__ import main
from replay.figures import quantiles
from tests.replay.recorded_runs import entries_of, mixed_load, record_run


def _shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_the_recording_at_large_says_whose_it_is_and_where_it_can_be_replayed(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _shown(capsys, str(recording))
    assert "closed in order (test over)" in text
    assert "numerics class scripted-1" in text
    assert "check        anywhere\n" in text
    assert "bit for bit on numerics class scripted-1" in text
    assert all(len(line) <= 120 for line in text.splitlines())
    values = json.loads(_shown(capsys, str(recording), "--json"))
    assert values["num_entries"] == len(entries_of(recording)) - 1  # without RecordingClosed
    assert values["num_bytes"] == sum(path.stat().st_size for path in recording.glob("*.rpr"))
    assert values["is_whole"] is True
    assert values["limits"]["num_kv_blocks"] == 24


def test_a_recording_without_contents_says_that_no_model_can_run_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record_run(tmp_path / "run", mixed_load(4), record_content=False)
    assert "nowhere: recorded without contents" in _shown(capsys, str(run))


def test_a_torn_recording_says_what_it_lost(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = tmp_path / "torn.rpr"
    torn.write_bytes((recording / "000001.rpr").read_bytes()[:-5])  # within the last frame
    values = json.loads(_shown(capsys, str(torn), "--json"))
    assert values["is_whole"] is False
    assert values["closed"] == ""
    assert any("bytes from offset" in notice for notice in values["notices"])


def test_the_transcript_has_every_record_on_a_line_of_its_own(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _shown(capsys, str(recording), "--transcript").splitlines()
    entries = entries_of(recording)
    assert len(lines) == 1 + sum(1 + len(entry.decisions) for entry in entries)
    assert sum("> StepPlanned" in line for line in lines) == sum(
        isinstance(decision, StepPlanned) for entry in entries for decision in entry.decisions
    )
    around = _shown(capsys, str(recording), "--transcript", "--around", "100").splitlines()
    sequences = [int(line[:8]) for line in around[1:] if line[:8].strip()]
    assert sequences == list(range(90, 111))


def test_the_transcript_as_json_is_one_entry_a_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _shown(capsys, str(recording), "--transcript", "--json").splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [entry.sequence for entry in entries_of(recording)]


def test_a_requests_story_tells_its_own_part_of_every_step(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decisions = [decision for entry in entries_of(recording) for decision in entry.decisions]
    victim = next(decision.request for decision in decisions if isinstance(decision, RequestPreempted))
    text = _shown(capsys, str(recording), "--request", f"req-{victim}")
    assert text == _shown(capsys, str(recording), "--request", str(victim))
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "RequestArrived" in text.splitlines()[2]
    assert "RequestFinished" in text.splitlines()[-1]
    own_steps = sum(any(row[0] == victim for row in it.rows) for it in decisions if isinstance(it, StepPlanned))
    assert text.count("> StepPlanned") == own_steps
    assert text.count("> RequestPreempted") >= 1
    story = json.loads(_shown(capsys, str(recording), "--request", str(victim), "--json"))["story"]
    assert len(story) == len(text.splitlines()) - 2


def test_a_request_that_never_arrived_is_refused(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(recording), "--request", "nobody"]) == 2
    assert "no request 'nobody' arrived" in capsys.readouterr().err


def test_the_traffic_figures_are_the_sums_over_the_entries(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = entries_of(recording)
    decisions = [decision for entry in entries for decision in entry.decisions]
    traffic = json.loads(_shown(capsys, str(recording), "--json"))["traffic"]
    assert traffic["arrived"] == sum(isinstance(entry.event, RequestArrived) for entry in entries) == 48
    assert sum(traffic["finished"].values()) == sum(isinstance(it, RequestFinished) for it in decisions)
    assert traffic["generation_tokens"] == sum(len(it.rows) for it in decisions if isinstance(it, TokensEmitted))
    assert traffic["preemptions"] == sum(isinstance(it, RequestPreempted) for it in decisions)
    assert traffic["ttft_ms"]["p50"] <= traffic["ttft_ms"]["p99"]
    assert list(traffic["deferrals"].values()) == sorted(traffic["deferrals"].values(), reverse=True)


def test_the_table_of_requests_has_one_row_each_and_fits_a_terminal(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _shown(capsys, str(recording), "--requests").splitlines()
    assert len(lines) == 1 + 48
    assert all(len(line) <= 120 for line in lines)
    rows = json.loads(_shown(capsys, str(recording), "--requests", "--json"))
    assert [row["request"] for row in rows] == [int(line.split()[0]) for line in lines[1:]]
    assert any(row["num_preemptions"] and row["outcome"] == "length" for row in rows)


@pytest.mark.parametrize(
    ("values", "p50", "p99"),
    [([5], 5, 5), ([1, 2], 1, 2), (list(range(1, 101)), 50, 99), (list(range(1, 202)), 101, 199)],
)
def test_quantiles_are_values_that_occurred(values: list[int], p50: int, p99: int) -> None:
    assert quantiles([value * 1_000_000 for value in values]) == {"p50": p50, "p99": p99}
    assert quantiles([None]) is None
