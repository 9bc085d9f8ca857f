"""Figures for programs: one JSON object. Times in it are in the unit that stands last in their names."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from daemon.bench.drift import Drift
from daemon.bench.plan import Plan
from daemon.bench.rounds import SIDES, Round, by_side
from daemon.bench.statistics import Spread, ratios, spreads
from engine.clock import Clock


def to_json(plan: Plan, rounds: Sequence[Round], clock: Clock) -> dict[str, Any]:
    figures = by_side(rounds)
    result: dict[str, Any] = {
        **_description(plan, clock),
        "rounds": [_round_to_json(one) for one in rounds],
        "figures": {side: _spreads_to_json(spreads(of_side)) for side, of_side in figures.items()},
    }
    if len(figures) == 2:
        result["ratios"] = _spreads_to_json(ratios(list(zip(figures["A"], figures["B"], strict=True))))
    return result


def drift_to_json(plan: Plan, drift: Drift, clock: Clock) -> dict[str, Any]:
    return {
        **_description(plan, clock),
        "drives": drift.figures,
        "comparisons": [
            {
                "name": comparison.name,
                "num_compared": comparison.num_compared,
                "num_differing": len(comparison.differences),
                "not_compared": list(comparison.not_compared),
                "differences": [asdict(difference) for difference in comparison.differences],
            }
            for comparison in drift.comparisons
        ],
        "errors": list(drift.errors),
    }


def _description(plan: Plan, clock: Clock) -> dict[str, Any]:
    return {
        "reprise_version": version("reprise"),
        "measured_at": datetime.fromtimestamp(clock.wall_ns() / 1e9, UTC).isoformat(timespec="seconds"),
        "machine": {"platform": platform.platform(), "num_cpus": os.cpu_count()},
        "workload": plan.workload.name,
        "load": str(plan.workload.load),
        "num_requests": len(plan.workload.requests),
        "seed": plan.workload.seed,
        "content_seed": plan.content_seed,
        "prompt": plan.form,
        "endpoints": {
            side: {"url": at.url, "model": at.model, "ignore_eos": at.ignore_eos, "extra": at.extra}
            for side, at in zip(SIDES, plan.endpoints, strict=False)
        },
    }


def _round_to_json(one: Round) -> dict[str, Any]:
    return {
        "side": one.side,
        "round": one.number,
        "figures": one.figures,
        "errors": dict(one.errors),
        "output_tokens_counted_by": dict(one.counted_by),
        "bandwidth_before": one.before._asdict(),
        "bandwidth_after": one.after._asdict(),
    }


def _spreads_to_json(values: dict[str, Spread]) -> dict[str, dict[str, float]]:
    return {key: value._asdict() for key, value in values.items()}
