"""A recorded load under other settings: where nothing was changed nothing changes, and the rest the core decides."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.core.events import PolicyChanged, RequestCancelled, StepCompleted
from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from engine.core.vocabulary import Entry
from engine.protocol import Arrive, ChangePolicy
from replay.__main__ import main
from replay.check import check
from replay.done import done_by
from replay.model_runs.open_model import Overrides
from replay.model_runs.real_steps import opener
from replay.refusal import CannotCompare
from replay.what_if.trust import trust_in
from replay.what_if.what_if import Question, what_if
from tests.golden.make import GOLDEN
from tests.replay.recorded_runs import mixed_load, open_scripted, record_run
from tests.replay.simulate import samples
from tests.replay.what_if.worlds import TIGHT, life_of, served_again, simulated


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("busy") / "fcfs")


TRUSTED_OR_NOT = (0, 1)  # of a run with measured times, which are the machine's


def answered(
    capsys: pytest.CaptureFixture[str], *arguments: str, exit_code: int | tuple[int, ...] = 0
) -> dict[str, Any]:
    assert main(["what-if", *arguments, "--json"]) in (exit_code if isinstance(exit_code, tuple) else (exit_code,))
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    return values


def done_in(entries: list[Entry]) -> list[Any]:
    return [done for entry in entries for decision in entry.decisions if (done := done_by(decision)) is not None]


# ── nothing was changed ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_the_recorded_settings_give_every_entry_again(policy: str, tmp_path: Path) -> None:
    limits = Limits.from_dict({**TIGHT.to_dict(), "scheduling_policy": policy})
    path = simulated(tmp_path / policy, limits, 40)
    _, _, entries = life_of(path)
    assert served_again(path) == entries


@pytest.mark.parametrize("num_followed", [1, 7, 40, 150])
def test_wherever_the_prediction_begins_it_ends_as_recorded(busy: Path, num_followed: int) -> None:
    _, _, entries = life_of(busy)
    assert served_again(busy, num_followed) == entries


def test_a_scripted_run_with_cancels_and_hits_decides_again_as_it_did(recording: Path) -> None:
    _, _, entries = life_of(recording)
    assert any(isinstance(entry.event, RequestCancelled) for entry in entries)
    assert done_in(served_again(recording)) == done_in(entries)


def test_noise_dealt_out_otherwise_serves_the_same_requests_to_the_same_ends(recording: Path) -> None:
    _, _, entries = life_of(recording)
    ends = [{done[1:] for done in done_in(run) if done[0] == "RequestFinished" and done[2] == "length"}
            for run in (entries, served_again(recording, exchange=1))]  # fmt: skip
    assert len(ends[0]) > 20
    assert ends[0] == ends[1]


def test_without_changes_every_decision_is_the_recorded_one(busy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = answered(capsys, str(busy))
    assert values["first_difference"] is None
    assert values["recorded"] == values["what_if"] == values["control"]
    assert values["decisions"]["recorded"] == values["decisions"]["what_if"]
    assert values["trust"]["holds"]
    assert max(abs(error) for error in values["trust"]["errors"].values()) < 0.001


@pytest.mark.parametrize("version", ["format-1", "format-2"])
def test_golden_recordings_can_be_asked(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = answered(capsys, str(GOLDEN / version), "--kv-blocks", "48")
    assert (values["recorded"]["preemptions"], values["what_if"]["preemptions"]) == (1, 0)
    assert values["what_if"]["steps"] < values["recorded"]["steps"]


def test_each_life_of_the_engine_begins_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    for seed in range(2):
        record_run(path, mixed_load(15, seed))
    values = answered(capsys, str(path), exit_code=TRUSTED_OR_NOT)
    assert sum(values["recorded"]["finished"].values()) > 20
    assert values["what_if"] == values["recorded"]
    more = ["--kv-blocks", "60", "--record", str(tmp_path / "wide")]
    wide = answered(capsys, str(path), *more, exit_code=TRUSTED_OR_NOT)
    assert sum(wide["what_if"]["finished"].values()) == sum(values["recorded"]["finished"].values())
    verdict = check(tmp_path / "wide")
    assert verdict.exit_code == 0, verdict.as_text()


# ── something was ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_more_blocks_spare_preemptions_and_are_told_first_to_last(
    busy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = answered(capsys, str(busy), "--num-kv-blocks", "400")
    assert values["changes"] == {"num_kv_blocks": {"recorded": 40, "asked": 400}}
    assert values["recorded"]["preemptions"] > 0 == values["what_if"]["preemptions"]
    assert values["what_if"]["extra_tokens_share"] == 0 < values["recorded"]["extra_tokens_share"]
    assert values["what_if"]["ttft_ms"]["p90"] < values["recorded"]["ttft_ms"]["p90"]
    assert values["what_if"]["finished"] == values["recorded"]["finished"]
    assert values["first_difference"]["sequence"] > 0


def test_shortest_first_serves_the_middle_sooner_and_the_table_says_so(
    busy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", str(busy), "--policy", "shortest"]) == 0
    table = capsys.readouterr().out
    assert "scheduling_policy fcfs → shortest" in table
    assert "the first decision that differs: sequence" in table
    assert "\ntrusted: " in table
    (line,) = [line for line in table.splitlines() if line.startswith("TTFT p50")]
    assert float(line.split()[-1].rstrip("×")) < 0.8


def test_what_is_predicted_is_what_a_run_under_those_settings_records(tmp_path: Path, busy: Path) -> None:
    """The world's step cost is known, so the other run can be had."""
    wide = Limits.from_dict({**TIGHT.to_dict(), "num_kv_blocks": 70, "scheduling_policy": "shortest"})
    happened = what_if(simulated(tmp_path / "other", wide), Question({})).recorded
    predicted = what_if(busy, Question({"num_kv_blocks": 70, "scheduling_policy": "shortest"})).asked
    for latency in ("ttft_ms", "itl_ms", "e2e_ms"):
        for rank in ("p50", "p99"):
            assert predicted[latency][rank] == pytest.approx(happened[latency][rank], rel=0.05), (latency, rank)


def test_the_cache_decides_again_what_is_found_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(samples.mooncake(tmp_path))
    run = ["--divide-prompt", "32", "--stretch", "10", "--repeat", "8", "--record-dir", str(tmp_path / "run")]
    assert main(["simulate", trace, *run]) == 0
    capsys.readouterr()
    values = answered(capsys, str(tmp_path / "run"), "--no-enable-prefix-caching")
    assert values["recorded"]["cache_hit_share"] > 0 == values["what_if"]["cache_hit_share"]
    assert values["what_if"]["ttft_ms"]["p50"] > values["recorded"]["ttft_ms"]["p50"]


def test_tenants_are_told_apart_and_fairness_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(samples.servegen(tmp_path))
    flags = ["--stretch", "0.05", "--num-requests", "80", "--num-kv-blocks", "60", "--max-model-len", "512"]
    assert main(["simulate", trace, *flags, "--record-dir", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    values = answered(capsys, str(tmp_path / "run"), "--policy", "fair")
    assert set(values["what_if"]["tenants"]) == {"7", "9"}
    assert values["what_if"]["fairness"] > values["recorded"]["fairness"]
    assert main(["what-if", str(tmp_path / "run"), "--policy", "fair"]) == 0
    assert "\n7  " in capsys.readouterr().out


def test_who_was_refused_is_served_where_the_queue_is_longer(tmp_path: Path) -> None:
    short = Limits.from_dict({**TIGHT.to_dict(), "max_num_queued_reqs": 4})
    path = simulated(tmp_path / "short", short)
    answer = what_if(path, Question({"max_num_queued_reqs": 1_000}))
    num_refused = sum(answer.recorded["rejected"].values())
    assert num_refused > 0
    assert answer.asked["rejected"] == {}
    assert sum(answer.asked["finished"].values()) == 60
    assert f"{num_refused} requests were refused or expired" in answer.notes[0]


def test_a_cancel_comes_at_its_time_and_not_where_it_had_come_too_late(recording: Path) -> None:
    answer = what_if(recording, Question({"num_kv_blocks": 200}))
    assert answer.recorded["finished"]["cancelled"] > 0
    assert sum(answer.asked["finished"].values()) == sum(answer.recorded["finished"].values())
    assert answer.asked["finished"]["length"] >= answer.recorded["finished"]["length"] - 1


def test_a_recorded_change_of_policy_happens_unless_another_was_asked_for(tmp_path: Path) -> None:
    change = ChangePolicy("priority", (("priority_aging_ns", 5),))
    path = record_run(tmp_path / "run", [*mixed_load(20), (10, change)])
    for asked, policy in (({}, "priority"), ({"scheduling_policy": "shortest"}, "shortest")):
        target = tmp_path / policy
        what_if(path, Question(asked, record_dir=target))
        _, _, entries = life_of(target)
        (event,) = [entry.event for entry in entries if isinstance(entry.event, PolicyChanged)]
        assert event == PolicyChanged(policy, (("priority_aging_ns", 5),))


def test_the_counterfactual_can_be_recorded_checked_shown_and_compared(
    busy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "counterfactual"
    values = answered(capsys, str(busy), "--policy", "priority", "--record", str(target))
    verdict = check(target)
    assert verdict.exit_code == 0, verdict.as_text()
    assert main(["show", str(target), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["traffic"]["preemptions"] == values["what_if"]["preemptions"]
    assert main(["diff", str(busy), str(target), "--json"]) == 1
    compared = json.loads(capsys.readouterr().out)
    assert compared["limits"] == {"scheduling_policy": ["fcfs", "priority"]}
    assert compared["latencies"][1]["ttft_ms"] == values["what_if"]["ttft_ms"]
    assert all(pair["first_differing_token"] is None for pair in compared["requests"])


# ── the model runs ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_executed_the_same_tokens_come_out_under_other_settings(recording: Path, tmp_path: Path) -> None:
    """The scripted runner's tokens follow from the context that it reads back, so other bits would be seen."""
    open_steps = opener(Overrides(), open_scripted)
    # the queue holds all, for in a stall of the machine all may come at once
    settings = {"num_kv_blocks": 60, "scheduling_policy": "priority", "block_size": 8, "max_num_queued_reqs": 64}
    answer = what_if(recording, Question(settings, record_dir=tmp_path / "executed", open_steps=open_steps))
    assert answer.is_executed
    assert answer.fork is None
    assert answer.asked["preemptions"] < answer.recorded["preemptions"]
    assert sum(answer.asked["finished"].values()) == sum(answer.recorded["finished"].values())
    assert check(tmp_path / "executed").exit_code == 0
    outputs = [_digests(entries) for _, _, entries in (life_of(recording), life_of(tmp_path / "executed"))]
    assert len(outputs[0]) > 30
    for request, digests in outputs[0].items():
        shorter = min(len(digests), len(outputs[1][request]))  # a cancel comes at its time, not at its token
        assert digests[:shorter] == outputs[1][request][:shorter]


def _digests(entries: list[Entry]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in entries:
        if isinstance(entry.event, StepCompleted):
            for request, _flag, digest, _bits in entry.event.emitted:
                found.setdefault(request, []).append(digest)
    return found


def test_executing_without_contents_is_refused(busy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = answered(capsys, str(busy), "--execute", exit_code=2)
    assert "contents" in values["reason"]


# ── no answer, or none to trust ─────────────────────────────────────────────────────────────────────────────────────


def test_another_block_size_is_refused_with_the_way_out(busy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = answered(capsys, str(busy), "--block-size", "32", exit_code=2)
    assert "in blocks of 16 tokens" in values["reason"]
    assert "--execute" in values["remedy"]


def test_limits_that_cannot_hold_are_refused(busy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "num_kv_blocks" in answered(capsys, str(busy), "--kv-blocks", "0", exit_code=2)["reason"]
    assert "lottery" in answered(capsys, str(busy), "--policy", "lottery", exit_code=2)["reason"]


def test_too_few_steps_tell_no_step_cost(tmp_path: Path) -> None:
    ((step, arrive), *_) = mixed_load(1)
    assert isinstance(arrive, Arrive)
    path = record_run(tmp_path / "run", [(step, arrive._replace(max_output_tokens=5))])
    with pytest.raises(CannotCompare, match="a step cost is fitted to 20 at least"):
        what_if(path, Question({"num_kv_blocks": 50}))


def test_an_answer_beyond_the_bounds_is_not_to_be_trusted() -> None:
    def values(p50: float, p99: float) -> dict[str, Any]:
        return {"ttft_ms": {"p50": p50, "p99": p99}, "itl_ms": None}

    recorded = values(100, 1_000)
    assert trust_in(recorded, values(101.9, 951), (), None).holds
    off_p50, off_p99 = (trust_in(recorded, values(*pair), (), None) for pair in ((102.1, 1_000), (100, 1_051)))
    assert not off_p50.holds
    assert off_p99.as_text().startswith("NOT TO BE TRUSTED: what was recorded comes out by the same means with TTFT")
    assert "p99 +5.1%" in off_p99.as_text()
    assert not trust_in({"ttft_ms": None, "itl_ms": None}, {"ttft_ms": None, "itl_ms": None}, (), None).holds
