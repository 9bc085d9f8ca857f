"""The simulator serves a trace with the engine's own core: nothing is lost, figures add up, recordings check."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from engine.core.step_time import StepShape
from replay.__main__ import main
from replay.check import check
from replay.simulate.arrivals import NS_PER_S, Arrival
from replay.simulate.fairness import fairness, jains_index, max_min_shares
from replay.simulate.fitted_cost import cost_of_recording, fit
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost
from tests.replay.simulate import samples

COST = StepCost(1_000_000, 100_000, 0, 10_000, 0)
SMALL_POOL = ["--num-kv-blocks", "60", "--max-model-len", "512", "--reserve-output", "none"]


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["simulate", *arguments, "--json"]) == 0
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    return values


def test_one_request_takes_what_the_step_cost_says() -> None:
    values = run_simulation(Limits(), [Arrival(5, 20, 3, max_output_tokens=10)], COST)
    prefill_ms, decode_ms = 1 + 20 * 0.01, 1 + 0.1
    assert values["ttft_ms"]["p50"] == pytest.approx(prefill_ms)
    assert values["itl_ms"]["p99"] == pytest.approx(decode_ms)
    assert values["e2e_ms"]["p50"] == pytest.approx(prefill_ms + 2 * decode_ms)
    assert (values["steps"], values["computed_tokens"], values["generation_tokens"]) == (3, 22, 3)
    assert values["finished"] == {"stop": 1}


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_under_pressure_everybody_ends_and_what_is_computed_twice_is_counted(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = simulated(capsys, str(samples.busy_azure(tmp_path)), "--policy", policy, *SMALL_POOL)
    assert sum(values["finished"].values()) == 120
    assert values["preemptions"] > 0
    assert 0 < values["extra_tokens_share"] < 1
    needed = values["prompt_tokens"] + values["generation_tokens"] - 120
    assert values["computed_tokens"] == pytest.approx(needed * (1 + values["extra_tokens_share"]), rel=1e-6)
    assert 0 < values["good_share"] <= 1
    assert values["worst_wait_passes"] > 10


def test_equal_arguments_give_equal_figures_and_a_recording_that_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(samples.busy_azure(tmp_path))
    plain = simulated(capsys, trace, *SMALL_POOL)
    recorded = simulated(capsys, trace, *SMALL_POOL, "--record-dir", str(tmp_path / "run"))
    for speed in ("wall_seconds", "times_real_time"):
        del plain[speed], recorded[speed]
    assert plain == recorded
    verdict = check(tmp_path / "run")
    assert verdict.exit_code == 0, verdict.as_text()
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["traffic"]
    assert {name: shown[name] for name in ("ttft_ms", "itl_ms", "preemptions")} == {
        name: plain[name] for name in ("ttft_ms", "itl_ms", "preemptions")
    }


def test_prefixes_of_a_trace_are_found_in_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(samples.mooncake(tmp_path))
    values = simulated(capsys, trace, "--divide-prompt", "32", "--stretch", "10")
    assert values["prefix_cache_hit_share"] == pytest.approx((48 + 16) / (48 + 50 + 32))
    without = simulated(capsys, trace, "--divide-prompt", "32", "--no-enable-prefix-caching")
    assert without["prefix_cache_hit_share"] == 0
    coarser = simulated(capsys, trace, "--divide-prompt", "16", "--stretch", "10", "--block-size", "16")
    assert coarser["prefix_cache_hit_share"] == pytest.approx((96 + 32) / (96 + 100 + 63))


def test_a_cost_fitted_to_a_recording_is_the_cost_it_was_made_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, run = str(samples.busy_azure(tmp_path)), tmp_path / "run"
    made_with = StepCost(4_000_000, 700_000, 300, 200_000, 50)
    first = simulated(capsys, trace, "--step-cost", made_with.as_flags(), "--record-dir", str(run))
    cost = cost_of_recording(run)
    for shape in (StepShape(1, 50, 0, 0), StepShape(20, 4_000, 0, 0), StepShape(5, 900, 200, 30_000)):
        assert cost.of(shape) == pytest.approx(made_with.of(shape), rel=0.02)
    again = simulated(capsys, trace, "--cost-from", str(run))
    assert again["virtual_seconds"] == pytest.approx(first["virtual_seconds"], rel=0.02)


def test_no_weight_of_a_fitted_cost_is_negative() -> None:
    shapes = [StepShape(rows, 100 * rows, 0, 0) for rows in range(1, 30)]
    cost = fit([(shape, 10_000_000 - 100_000 * shape.num_decodes) for shape in shapes])
    assert min(cost.decode_ns, cost.context_ns) >= 0
    assert cost.fixed_ns > 0


def test_what_each_tenant_should_have_had_is_what_it_asked_for_or_an_equal_part() -> None:
    assert max_min_shares({"a": 1, "b": 10, "c": 10}, 9, {}) == {"a": 1, "b": 4, "c": 4}
    assert max_min_shares({"a": 10, "b": 10}, 9, {"a": 2}) == {"a": 6, "b": 3}
    assert fairness({"a": 1, "b": 10}, {"a": 1, "b": 4}, {}) == 1
    assert fairness({"a": 5, "b": 5}, {"a": 5}, {}) == pytest.approx(0.5)
    assert jains_index([1, 1, 1, 0]) == 0.75


def test_fair_shares_evenly_among_tenants_who_send_unevenly() -> None:
    arrivals = [
        Arrival(at_s * NS_PER_S // 40, 50, 20, tenant="few" if at_s % 10 == 0 else "many", max_output_tokens=20)
        for at_s in range(1_500)
    ]
    limits: dict[str, Any] = {"num_kv_blocks": 60, "max_num_queued_reqs": 10_000}
    slow = StepCost(5_000_000, 900_000, 0, 500_000, 0)
    fair, fcfs = (
        run_simulation(Limits(scheduling_policy=policy, **limits), arrivals, slow) for policy in ("fair", "fcfs")
    )
    assert fair["fairness"] > 0.97 > 0.9 > fcfs["fairness"]


def test_trouble_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tmp_path / "none.csv")]) == 2
    assert "reprise simulate: " in capsys.readouterr().err
    assert main(["simulate", str(samples.azure(tmp_path)), "--policy", "lottery"]) == 2
    assert "choose one of fcfs" in capsys.readouterr().err


def test_the_figures_are_lines_for_people_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(samples.servegen(tmp_path)), "--to-s", "60"]) == 0
    out = capsys.readouterr().out
    assert "ttft_ms" in out
    assert "fairness" in out


def test_swapping_costs_what_its_copies_take_and_so_compares_with_recomputing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cheap copies are chosen and charged; a dear one is measured, and no other made."""

    def with_copies_of(copy_ns: float, *swap_space: str) -> dict[str, Any]:
        cost = StepCost(copy_ns=copy_ns).as_flags()
        return simulated(capsys, trace, *SMALL_POOL, *swap_space, "--step-cost", cost)

    trace, space = str(samples.busy_azure(tmp_path)), ("--swap-space-blocks", "200")
    recomputed = with_copies_of(4_000)
    assert (recomputed["swaps"], recomputed["swap_ms"]) == (0, 0)
    swapped = with_copies_of(4_000, *space)
    assert swapped["swaps"] == swapped["preemptions"] > 5
    num_copied = swapped["swapped_out_blocks"] + swapped["swapped_in_blocks"]
    assert swapped["swap_ms"] == pytest.approx(num_copied * 16 * 0.004)
    assert swapped["extra_tokens_share"] == 0 < recomputed["extra_tokens_share"]
    assert swapped["e2e_ms"]["p99"] < recomputed["e2e_ms"]["p99"]
    dear = with_copies_of(4_000_000, *space)
    assert dear["swaps"] == 1
    assert dear["e2e_ms"]["p99"] > recomputed["e2e_ms"]["p99"] + 1_000


def test_what_a_copy_takes_is_read_from_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, run = str(samples.busy_azure(tmp_path)), tmp_path / "run"
    made_with = StepCost(copy_ns=7_000)
    pool = [*SMALL_POOL, "--swap-space-blocks", "200", "--step-cost", made_with.as_flags()]
    simulated(capsys, trace, *pool, "--record-dir", str(run))
    fitted = cost_of_recording(run)
    assert fitted.copy_ns == pytest.approx(7_000, rel=0.01)
    assert fitted.prefill_ns == pytest.approx(made_with.prefill_ns, rel=0.1)
