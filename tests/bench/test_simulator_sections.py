"""The two comparisons made with the simulator still run, small; no word about their figures."""

import gzip
from pathlib import Path

import pytest

from replay.simulate.arrivals import Fitting, fitted
from replay.simulate.trace_files import read_trace
from tests.bench import policy_table, simulator_against_engine
from tests.bench.policy_table import LOADS, TENANTS, simulated
from tests.bench.simulator_against_engine import Pair
from tests.replay.simulate import samples


def test_the_table_of_policies_can_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_table, "DIVIDE_RATE", 10)
    for load, sample in zip(LOADS, (samples.azure, samples.azure, samples.mooncake), strict=True):
        data = sample(tmp_path).read_bytes()
        (tmp_path / load.file).write_bytes(data if data[:2] == b"\x1f\x8b" else gzip.compress(data))
    (tmp_path / TENANTS.file).write_bytes(gzip.compress(samples.servegen(tmp_path).read_bytes()))
    (tmp_path / f"{TENANTS.file.removesuffix('.csv.gz')}-lengths.json").write_text(
        (tmp_path / "clients-lengths.json").read_text()
    )
    assert policy_table.main([str(tmp_path), "--policies", "fcfs"]) == 0
    out = capsys.readouterr().out
    assert all(f"| {load.name} | `fcfs` |" in out for load in LOADS)
    assert "2 tenants" in out


def test_an_order_is_only_wrong_where_the_engine_tells_two_policies_clearly_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = simulated(fitted(read_trace(samples.azure(tmp_path)), Fitting(num_requests=3)), "fcfs", 300)

    def at(policy: str, engine_ms: float, simulated_ms: float) -> Pair:
        engine, simulator = ({**values, "ttft_ms": {"p50": ms, "p99": ms}} for ms in (engine_ms, simulated_ms))
        return Pair(policy, engine, simulator)

    ranked_alike = simulator_against_engine._ranked_alike
    assert ranked_alike("TTFT p50", [at("a", 100, 10), at("b", 200, 15), at("c", 205, 14)])
    assert not ranked_alike("TTFT p50", [at("a", 100, 10), at("b", 200, 9)])
    assert "engine a < b; simulator b < a; tau -1.00" in capsys.readouterr().out
