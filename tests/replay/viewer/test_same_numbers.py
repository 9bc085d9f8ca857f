"""Every number that the viewer shows is the one that `reprise show --json` prints for the same thing."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.core.decisions import RequestAdmitted, StepPlanned
from engine.core.events import StepCompleted
from engine.core.vocabulary import Entry
from replay.show import View, show
from replay.transcript import describe
from replay.viewer.viewed import Viewed
from tests.replay.recorded_runs import entries_of
from tests.replay.viewer.asked import ask, ask_binary, ask_request, ask_step

NUM_WALKED = 200


def shown(run: Path, view: View) -> Any:
    return json.loads("\n".join(show(run, view)))


@pytest.fixture(scope="module")
def requests(run: Path) -> dict[int, dict[str, Any]]:
    return {values["request"]: values for values in shown(run, View(requests=True, as_json=True))}


@pytest.fixture(scope="module")
def transcript(run: Path) -> dict[int, dict[str, Any]]:
    lines = show(run, View(transcript=True, as_json=True))
    return {values["sequence"]: values for values in map(json.loads, lines)}


@pytest.fixture(scope="module")
def plans(transcript: dict[int, dict[str, Any]]) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
    """Step → its plan and the entry that holds it."""
    found = {}
    for entry in transcript.values():
        for decision in entry["decisions"]:
            if decision["record"] == "StepPlanned":
                found[decision["step"]] = (decision, entry)
    return found


def test_two_hundred_random_numbers_are_those_of_show(
    viewed: Viewed,
    run: Path,
    requests: dict[int, dict[str, Any]],
    transcript: dict[int, dict[str, Any]],
    plans: dict[int, tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    draw = random.Random(7)
    walked = 0
    while walked < NUM_WALKED:
        pairs = [*of_request(viewed, run, draw.choice(sorted(requests)), requests)]
        pairs += of_step(viewed, draw.choice(sorted(plans)), transcript, plans)
        for name, got, expected in draw.sample(pairs, min(12, len(pairs))):
            assert got == expected, name
            walked += 1


def of_request(
    viewed: Viewed, run: Path, number: int, requests: dict[int, dict[str, Any]]
) -> Iterator[tuple[str, Any, Any]]:
    answer, expected = ask_request(viewed, number), requests[number]
    told = shown(run, View(request=str(number), as_json=True))
    for name, value in expected.items():
        yield f"request {number}: {name}", answer["request"][name], value
    waited: dict[str, int] = {}
    for wait in answer["waits"]:
        waited[wait["reason"]] = waited.get(wait["reason"], 0) + wait["until_ns"] - wait["now_ns"]
    deferred = {reason: ns / 1e6 for reason, ns in waited.items()}
    yield f"request {number}: waits", deferred, expected["deferred_ms"]
    yield f"request {number}: story", answer["story"], told["story"]
    yield f"request {number}: arrival", answer["arrived"], told["request"]
    with viewed.database() as database:
        row = dict(database.execute("SELECT * FROM requests WHERE number = ?", (number,)).fetchone())
    for name in ("queue_ms", "ttft_ms", "tpot_ms", "e2e_ms"):
        yield f"table requests {number}: {name}", row[name], expected[name]
    yield f"table requests {number}: output", row["output_tokens"], expected["num_output_tokens"]
    yield f"table requests {number}: preemptions", row["preemptions"], expected["num_preemptions"]


def of_step(
    viewed: Viewed,
    step: int,
    transcript: dict[int, dict[str, Any]],
    plans: dict[int, tuple[dict[str, Any], dict[str, Any]]],
) -> Iterator[tuple[str, Any, Any]]:
    answer, (plan, entry) = ask_step(viewed, step), plans[step]
    told = answer["step"]
    yield f"step {step}: planned", told["planned_ns"], entry["time_ns"]
    yield f"step {step}: sequence", told["sequence"], entry["sequence"]
    for name, field in (("running", "num_running"), ("waiting", "num_waiting"), ("free_blocks", "num_blocks_free")):
        yield f"step {step}: {name}", told[name], plan[field]
    yield f"step {step}: waiting requests", len(answer["waiting"]), plan["num_waiting"]
    yield f"step {step}: running requests", len(answer["running"]), plan["num_running"]
    rows = [[row["request"], row["start"], row["count"]] for row in answer["rows"]]
    yield f"step {step}: rows", rows, plan["rows"]
    blocks = [[row["request"], block] for row in answer["rows"] for block in row["new_blocks"]]
    yield f"step {step}: new blocks", sorted(blocks), sorted(plan["new_blocks"])
    for decision in answer["decisions"]:
        expected = transcript[decision["sequence"]]["decisions"][decision["at"]]
        if decision["fields"] is not None:
            yield f"step {step}: {decision['record']}", decision["fields"], expected
    result = transcript[told["completed_sequence"]]
    yield f"step {step}: result", told["completed_ns"], result["time_ns"]
    yield f"step {step}: execute", told["execute_ns"], result["event"]["execute_ns"]


def test_the_strips_are_the_plans_figures(
    viewed: Viewed, plans: dict[int, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    header, arrays = ask_binary(viewed, "strips", axis="step", from_=0, to=len(plans), width=len(plans))
    assert header["names"][:2] == ["running", "waiting"]
    for step, (plan, _) in plans.items():
        for name, field in (("running", "num_running"), ("waiting", "num_waiting"), ("free_blocks", "num_blocks_free")):
            assert {arrays[f"{name}.{of}"][step] for of in ("min", "max", "mean")} == {plan[field]}


def test_a_selections_figures_over_everything_are_those_of_show(viewed: Viewed, run: Path) -> None:
    traffic = shown(run, View(as_json=True))["traffic"]
    area = ask(viewed, "area")
    assert (area["requests"], area["steps"]) == (traffic["arrived"], traffic["steps"])
    assert area["preemptions"] == traffic["preemptions"]
    assert area["ttft_ms"] == traffic["ttft_ms"]
    assert area["e2e_ms"]["p99"] == traffic["e2e_ms"]["p99"]


def test_neighbours_are_those_whose_rows_stood_in_the_same_steps(
    viewed: Viewed, plans: dict[int, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    expected: dict[int, list[int]] = {}
    for step, (plan, _) in plans.items():
        numbers = [row[0] for row in plan["rows"]]
        for number in numbers if 9 in numbers else ():
            expected.setdefault(number, []).append(step)
    expected.pop(9)
    got = {
        it["request"]: (it["steps"], it["first_step"], it["last_step"]) for it in ask_request(viewed, 9)["neighbours"]
    }
    assert got == {number: (len(steps), steps[0], steps[-1]) for number, steps in expected.items()}


def test_a_steps_decisions_are_all_since_the_plan_before(viewed: Viewed, run: Path) -> None:
    entries: list[Entry] = entries_of(run)
    for step in (0, 1, 17, 60):
        answer = ask_step(viewed, step)
        first = ask_step(viewed, step - 1)["step"]["sequence"] + 1 if step else 0
        within = [entry for entry in entries if first <= entry.sequence <= answer["step"]["sequence"]]
        expected = [describe(decision) for entry in within for decision in entry.decisions]
        assert [decision["text"] for decision in answer["decisions"]] == expected


def test_the_block_map_is_the_requests_tables(viewed: Viewed) -> None:
    for step in (5, 40, 90):
        _, arrays = ask_binary(viewed, "blocks/{life}/{step}", life=1, step=step)
        running = ask_step(viewed, step)["running"]
        assert int(arrays["refs"].sum()) == sum(request["num_blocks"] for request in running)
        assert set(arrays["owner"].tolist()) - {-1} <= {request["request"] for request in running}
        assert ask_step(viewed, step)["step"]["free_blocks"] == int((arrays["refs"] == 0).sum())


def test_contents_are_read_only_when_asked_for_and_leave_an_audit_line(
    viewed: Viewed, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = ask_request(viewed, 3)
    assert answer["contents"] is None
    assert "contents=1" in answer["contents_reason"]
    assert "audit" not in capfd.readouterr().err
    contents = ask_request(viewed, 3, contents=1)["contents"]
    assert len(contents["prompt_tokens"]) == answer["request"]["num_prompt_tokens"]
    assert len(contents["output_tokens"]) >= answer["request"]["num_output_tokens"]
    assert '"audit": "contents"' in capfd.readouterr().err


def test_a_blocks_age_counts_from_the_last_step_that_wrote_into_it(viewed: Viewed, run: Path) -> None:
    at_step = 60
    last_written: dict[int, int] = {}
    tables: dict[int, list[int]] = {}
    under_way: dict[int, int] = {}
    for entry in entries_of(run):
        if isinstance(entry.event, StepCompleted):
            last_written |= under_way
            under_way = {}
            if entry.event.step == at_step:
                break
        for it in entry.decisions:
            match it:
                case RequestAdmitted():
                    tables[it.request] = list(it.block_ids)
                    copied = it.block_ids[it.num_hit_blocks : it.num_hit_blocks + len(it.host_blocks)]
                    under_way |= {block: ask_after(entry) for block in copied}
                case StepPlanned():
                    for request, block in it.new_blocks:
                        tables[request].append(block)
                    for request, start, count in it.rows:
                        touched = tables[request][start // 4 : (start + count - 1) // 4 + 1]
                        under_way |= dict.fromkeys(touched, it.step)
    _, arrays = ask_binary(viewed, "blocks/{life}/{step}", life=1, step=at_step)
    got = {block: at_step - age for block, age in enumerate(arrays["age_steps"].tolist()) if age != 2**32 - 1}
    assert got == last_written


def ask_after(entry: Entry) -> int:
    """The step that the entry plans."""
    (plan,) = [it for it in entry.decisions if isinstance(it, StepPlanned)]
    return plan.step
