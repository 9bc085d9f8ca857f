"""Does `what-if` predict what the engine then does? Recorded, predicted and measured, on parts of public traces.

    python -m tests.bench.what_if_accuracy FOLDER [--workloads N] [--policies fcfs shortest …] [--keep DIR]

Each workload is a part of a trace, its lengths divided as fits the default model. It is sent over HTTP to a daemon once
under each policy. From the recording of the first policy `what-if` predicts the others. Printed are, for each workload,
how well the recorded settings are predicted by the same means (the control), what is predicted of each policy beside
what was measured, and whether the policies are ranked alike. A machine in use is not as fast in one run as in the next,
so what was measured is also given at the first run's speed: divided by how much longer steps of equal shapes took, by
the cost fitted to the first. A run takes half a minute to a minute on two quiet cores; with --keep, runs that are there
are not made again.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from engine.core.limits import Limits
from engine.core.policies.registry import POLICY_NAMES
from replay.lives import Run
from replay.refusal import CannotCompare
from replay.simulate.arrivals import Arrival, Fitting, fitted
from replay.simulate.step_cost import StepCost
from replay.simulate.trace_files import read_trace
from replay.what_if.answer import Answered
from replay.what_if.recorded_load import RecordedLoad, StepSample
from replay.what_if.step_times import StepTimes
from replay.what_if.what_if import Question, what_if
from tests.bench.simulator_against_engine import CLEARLY, LIMITS, send_all
from tests.integration.daemon_process import DaemonProcess

METRICS = (("ttft_ms", "p50"), ("ttft_ms", "p99"), ("e2e_ms", "p50"))


class Workload(NamedTuple):
    """A part of a trace, from a second on, so many requests."""

    name: str
    file: str
    from_s: float
    divide_prompt: int
    stretch: float
    num_requests: int = 70
    divide_rate: float = 1

    def arrivals(self, folder: Path) -> list[Arrival]:
        trace = read_trace(folder / self.file, None, self.from_s, self.from_s + 3_600, self.divide_rate)
        longest = (LIMITS["max_model_len"] - 1) * self.divide_prompt
        trace = [arrival for arrival in trace if arrival.num_prompt_tokens < longest]
        return fitted(
            trace,
            Fitting(
                from_s=self.from_s,
                num_requests=self.num_requests,
                stretch=self.stretch,
                divide_prompt=self.divide_prompt,
                divide_output=4,
                num_classes=10,
                max_output_tokens=256,
                max_model_len=LIMITS["max_model_len"],
            ),
        )


CHAT, CODE = "azure-llm-2023-conv.csv.gz", "azure-llm-2023-code.csv.gz"
MOONCAKE, SERVEGEN = "mooncake-conversation.jsonl.gz", "servegen-m-small-12-clients.csv.gz"
WORKLOADS = (  # so dense that most have to wait: else policies differ by less than two runs of one
    Workload("chat", CHAT, 0, 8, 0.12),
    Workload("code", CODE, 0, 8, 0.08),
    Workload("mooncake", MOONCAKE, 0, 32, 0.3),
    Workload("servegen", SERVEGEN, 0, 4, 0.2, divide_rate=10),
    Workload("chat, 10 min", CHAT, 600, 8, 0.4),
    Workload("code, 10 min", CODE, 600, 8, 0.7),
    Workload("mooncake, 10 min", MOONCAKE, 600, 32, 0.3),
    Workload("servegen, 8 h", SERVEGEN, 28_800, 4, 0.2, divide_rate=10),
    Workload("chat, 15 min", CHAT, 900, 8, 0.4),
    Workload("code, 15 min", CODE, 900, 8, 0.4),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every ranking agrees, at one speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the traces as published")
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), metavar="N", help="only the first so many")
    parser.add_argument(
        "--policies", nargs="+", default=["fcfs", "priority", "shortest", "deadline"], choices=POLICY_NAMES
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the recordings stay")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        keep: Path = args.keep or Path(scratch)
        num_alike = sum(
            [_compare(workload, args.folder, args.policies, keep) for workload in WORKLOADS[: args.workloads]]
        )
    num_workloads = min(args.workloads, len(WORKLOADS))
    print(f"ranked alike: {num_alike} of {num_workloads} workloads")
    return 0 if num_alike == num_workloads else 1


def _compare(workload: Workload, folder: Path, policies: Sequence[str], keep: Path) -> bool:
    arrivals = workload.arrivals(folder)
    runs = {policy: _recorded(workload, arrivals, policy, keep) for policy in policies}
    predicted: dict[str, dict[str, Any]] = {}
    measured: dict[str, dict[str, Any]] = {}
    adjusted: dict[str, dict[str, Any]] = {}
    try:
        cost = StepTimes(_samples(runs[policies[0]])).cost
        for policy, run in runs.items():
            answer = what_if(runs[policies[0]], Question({"scheduling_policy": policy}))
            predicted[policy], measured[policy] = answer.asked, what_if(run, Question({})).recorded
            adjusted[policy] = _divided(measured[policy], _slowness(_samples(run), cost))
            if policy == policies[0]:
                print(
                    f"{workload.name}: {len(arrivals)} requests, {answer.recorded['steps']} steps; {_control(answer)}"
                )
            cells = [
                f"{name} {rank} {measured[policy][name][rank]:,.0f} ({adjusted[policy][name][rank]:,.0f}) | "
                f"{answer.asked[name][rank]:,.0f}"
                for name, rank in METRICS
            ]
            print(f"  {policy:9} measured (at one speed) | predicted, ms:  " + ",  ".join(cells), flush=True)
    except CannotCompare as refusal:
        print(f"{workload.name}: {refusal}")
        return False
    as_measured = [_ranked_alike(name, rank, measured, predicted) for name, rank in METRICS[:2]]
    at_one_speed = [_ranked_alike(name, rank, adjusted, predicted, " at one speed") for name, rank in METRICS[:2]]
    print(f"  ranked alike: as measured {as_measured}, at one speed {at_one_speed} (TTFT p50, p99)")
    return all(at_one_speed)


def _samples(run: Path) -> list[StepSample]:
    life = Run.open(run).lives[0]
    limits = Limits.from_dict(life.header.limits)
    return RecordedLoad(limits, life.comparable_entries(lambda refusal: None)).samples


def _slowness(samples: Sequence[StepSample], cost: StepCost) -> float:
    return sum(sample.total_ns for sample in samples) / sum(cost.of(sample.shape) for sample in samples)


def _divided(values: dict[str, Any], slowness: float) -> dict[str, Any]:
    return {name: {rank: value / slowness for rank, value in values[name].items()} for name, _ in METRICS}


def _control(answer: Answered) -> str:
    errors = ", ".join(f"{name} {rank} {error:+.1%}" for (name, rank), error in answer.trust.errors.items())
    return f"control: {errors}; {'trusted' if answer.trust.holds else 'not trusted'}"


def _recorded(workload: Workload, arrivals: Sequence[Arrival], policy: str, keep: Path) -> Path:
    target = keep / f"{workload.name}-{policy}".replace(" ", "-").replace(",", "")
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            flags = {"scheduling_policy": policy, "record_content": False, **LIMITS}
            with DaemonProcess(Path(scratch), **flags) as daemon:
                asyncio.run(send_all(daemon.base_url, arrivals))
            shutil.copytree(daemon.recording, target)
    return target


def _ranked_alike(name: str, rank: str, measured: dict[str, Any], predicted: dict[str, Any], how: str = "") -> bool:
    """Over the pairs that the measurement tells apart."""
    alike = True
    for left, right in combinations(measured, 2):
        ratio = measured[left][name][rank] / measured[right][name][rank]
        expected = predicted[left][name][rank] / predicted[right][name][rank]
        if not 1 / CLEARLY < ratio < CLEARLY and (ratio - 1) * (expected - 1) <= 0:
            alike = False
            print(f"  {name} {rank}: {left} / {right} is {ratio:.2f} measured{how}, {expected:.2f} predicted")
    return alike


if __name__ == "__main__":
    sys.exit(main())
