"""Does the simulator rank the policies as the engine does? The same load through both, policy by policy.

    python -m tests.bench.simulator_against_engine TRACE [--requests 90] [--stretch 1] [--policies fcfs shortest …]

A trace is cut and scaled down, sent over HTTP to a daemon with the default model, and its latencies are read from the
recording. Then the simulator serves the same arrivals, its step cost fitted to the recording of the first policy. One
run of each takes about a minute on two cores.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from recorder.reader import Recording
from replay.figures import figures, read_timeline
from replay.lives import Run
from replay.simulate.arrivals import NS_PER_S, Arrival, Fitting, fitted
from replay.simulate.fitted_cost import cost_of_recording
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost
from replay.simulate.trace_files import read_trace
from tests.integration.daemon_process import MODEL, DaemonProcess

LIMITS: dict[str, Any] = {"num_kv_blocks": 160, "max_num_seqs": 10, "max_model_len": 1024}
METRICS: dict[str, Callable[[dict[str, Any]], float]] = {
    "TTFT p50": lambda values: float(values["ttft_ms"]["p50"]),
    "TTFT p99": lambda values: float(values["ttft_ms"]["p99"]),
    "E2E p50": lambda values: float(values["e2e_ms"]["p50"]),
    "ITL p99": lambda values: float(values["itl_ms"]["p99"]),
}
CLEARLY = 1.1  # two policies whose figures are nearer than this in the engine are taken for equal


class Pair(NamedTuple):
    """One policy's figures, measured and simulated."""

    policy: str
    engine: dict[str, Any]
    simulator: dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when no two policies that clearly differ in TTFT p50 or p99 are ranked the other way round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--requests", type=int, default=90)
    parser.add_argument("--stretch", type=float, default=1)
    parser.add_argument(
        "--policies", nargs="+", default=["fcfs", "priority", "shortest", "deadline"], choices=POLICY_NAMES
    )
    args = parser.parse_args(arguments)
    fitting = Fitting(
        num_requests=args.requests,
        stretch=args.stretch,
        divide_prompt=8,
        divide_output=4,
        num_classes=10,
        max_model_len=1024,
    )
    arrivals = fitted(read_trace(args.trace), fitting)
    pairs: list[Pair] = []
    cost: StepCost | None = None
    for policy in args.policies:
        engine, limits, fitted_cost = _through_the_engine(arrivals, policy)
        if cost is None:
            cost = fitted_cost
            print(f"step cost {cost.as_flags()} ns (step, decode row, token it attends, prefill token, pair in it)")
        pairs.append(Pair(policy, engine, run_simulation(limits, arrivals, cost)))
        print(_line(pairs[-1]), flush=True)
    return 0 if all(_ranked_alike(name, pairs) for name in METRICS if name.startswith("TTFT")) else 1


def _through_the_engine(arrivals: Sequence[Arrival], policy: str) -> tuple[dict[str, Any], Limits, StepCost]:
    with tempfile.TemporaryDirectory() as folder:
        flags = {"scheduling_policy": policy, "record_content": False, **LIMITS}
        with DaemonProcess(Path(folder), **flags) as daemon:
            asyncio.run(send_all(daemon.base_url, arrivals))
        recording = Recording.open(daemon.recording)
        limits = Limits.from_dict(recording.header.limits)
        return figures(read_timeline(Run.open(daemon.recording))), limits, cost_of_recording(daemon.recording)


async def send_all(base_url: str, arrivals: Sequence[Arrival]) -> None:
    """Each at its time, whatever became of those before it."""
    pool = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=base_url, timeout=None, limits=pool) as client:
        await client.get("/ready")
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*[_send(client, number, arrival, began) for number, arrival in enumerate(arrivals)])


async def _send(client: httpx.AsyncClient, number: int, arrival: Arrival, began: float) -> None:
    await asyncio.sleep(began + arrival.at_ns / NS_PER_S - asyncio.get_running_loop().time())
    draws = random.Random(number)
    body = {
        "model": MODEL,
        "prompt": [draws.randrange(1_000, 40_000) for _ in range(arrival.num_prompt_tokens)],
        "max_tokens": arrival.num_output_tokens,
        "ignore_eos": True,
        "priority": arrival.priority,
    }
    response = await client.post("/v1/completions", json=body)
    response.raise_for_status()


def _line(pair: Pair) -> str:
    parts = [f"{name} {of(pair.engine):7,.0f} | {of(pair.simulator):7,.0f}" for name, of in METRICS.items()]
    preemptions = f"preemptions {pair.engine['preemptions']} | {pair.simulator['preemptions']}"
    return f"{pair.policy:9} engine | simulator, ms:  " + ",  ".join([*parts, preemptions])


def _ranked_alike(name: str, pairs: Sequence[Pair]) -> bool:
    """Kendall's tau over all pairs of policies is printed; the verdict is over those that the engine tells apart."""
    of = METRICS[name]
    signs: list[int] = []
    alike = True
    for left, right in combinations(pairs, 2):
        ratio, simulated = of(left.engine) / of(right.engine), of(left.simulator) / of(right.simulator)
        signs.append(1 if (ratio - 1) * (simulated - 1) > 0 else -1)
        alike = alike and (1 / CLEARLY < ratio < CLEARLY or signs[-1] > 0)
    order = [" < ".join(pair.policy for pair in sorted(pairs, key=key)) for key in (_engine(of), _simulator(of))]
    print(f"{name}: engine {order[0]}; simulator {order[1]}; tau {sum(signs) / len(signs):.2f}")
    return alike


def _engine(of: Callable[[dict[str, Any]], float]) -> Callable[[Pair], float]:
    return lambda pair: of(pair.engine)


def _simulator(of: Callable[[dict[str, Any]], float]) -> Callable[[Pair], float]:
    return lambda pair: of(pair.simulator)


if __name__ == "__main__":
    sys.exit(main())
