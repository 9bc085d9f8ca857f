"""Every policy on public traces, through the simulator: the README's table of policies.

    python -m tests.bench.policy_table FOLDER     # with the traces as published, gzipped

Lengths are divided as fits a small model, and time is stretched until the pool is short of blocks in the bursts: LOADS
says how. Clients allow 512 tokens and stop by themselves at their recorded length.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from replay.simulate.arrivals import Arrival, Fitting, fitted
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost
from replay.simulate.trace_files import read_trace


class Load(NamedTuple):
    """A trace as it is sent, and the pool it meets."""

    name: str
    file: str
    num_kv_blocks: int
    fitting: Fitting


LOADS = (
    Load(
        "Azure code",
        "azure-llm-2023-code.csv.gz",
        100,
        Fitting(divide_prompt=8, divide_output=4, stretch=0.5, num_classes=10, max_output_tokens=512),
    ),
    Load(
        "Azure chat",
        "azure-llm-2023-conv.csv.gz",
        300,
        Fitting(divide_prompt=8, divide_output=4, stretch=0.35, num_classes=10, max_output_tokens=512),
    ),
    Load(
        "Mooncake",
        "mooncake-conversation.jsonl.gz",
        300,
        Fitting(divide_prompt=32, divide_output=4, stretch=0.6, num_classes=10, max_output_tokens=512),
    ),
)
TENANTS = Load(
    "ServeGen",
    "servegen-m-small-12-clients.csv.gz",
    300,
    Fitting(divide_prompt=8, divide_output=4, stretch=1 / 600, max_output_tokens=512),
)
DIVIDE_RATE = 600  # of the tenants' day, whose proportions stay
LIMITS: dict[str, Any] = {
    "max_model_len": 8192,
    "max_num_queued_reqs": 1_000_000,
    "itl_target_ms": 200,  # what a good request is
    "mixed_step_target_ms": 50,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--policies", nargs="+", default=POLICY_NAMES)
    args = parser.parse_args(arguments)
    print("| trace | policy | TTFT p50 / p99 | ITL p50 / p99 | goodput | preemptions, tokens computed again |")
    print("|---|---|---|---|---|---|")
    for load in LOADS:
        arrivals = fitted(read_trace(args.folder / load.file), load.fitting)
        for policy in args.policies:
            print(_row(load.name, simulated(arrivals, policy, load.num_kv_blocks)), flush=True)
    arrivals = fitted(read_trace(args.folder / TENANTS.file, divide_rate=DIVIDE_RATE), TENANTS.fitting)
    print(f"\n{len({arrival.tenant for arrival in arrivals})} tenants, {len(arrivals)} requests: Jain's index")
    for policy in ("fair", "fcfs"):
        print(f"  {policy}: {simulated(arrivals, policy, TENANTS.num_kv_blocks)['fairness']:.3f}", flush=True)
    return 0


def simulated(arrivals: Sequence[Arrival], policy: str, num_kv_blocks: int) -> dict[str, Any]:
    limits = Limits(scheduling_policy=policy, num_kv_blocks=num_kv_blocks, **LIMITS)
    return run_simulation(limits, arrivals, StepCost())


def _row(trace: str, values: dict[str, Any]) -> str:
    ttft, itl = values["ttft_ms"], values["itl_ms"]
    return (
        f"| {trace} | `{values['policy']}` | {_seconds(ttft['p50'])} / {_seconds(ttft['p99'])} s "
        f"| {itl['p50']:.0f} / {itl['p99']:.0f} ms | {values['goodput_rps']:.2f}/s ({values['good_share']:.0%}) "
        f"| {values['preemptions']}, {values['extra_tokens_share']:.1%} |"
    )


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.2f}" if milliseconds < 10_000 else f"{milliseconds / 1e3:.0f}"


if __name__ == "__main__":
    sys.exit(main())
