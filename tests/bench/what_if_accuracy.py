"""Does `what-if` predict what the engine then does? Recorded, predicted and measured, on parts of public traces.

    python -m tests.bench.what_if_accuracy FOLDER [--workloads N] [--repeats N] [--policies fcfs …] [--keep DIR]

Each workload is a part of a trace, its lengths divided as fits the default model. It is sent over HTTP to a daemon
under each policy, some times over. From the first recording of the first policy `what-if` predicts the others. Printed
are, for each workload, how well the recorded settings are predicted by the same means (the control), what is predicted
of each policy beside what was measured, and whether the policies are ranked alike, over the pairs of which each run of
one differs clearly from each run of the other. A machine in use is not as fast in one run as in the next, so what was
measured is also given at the first run's speed: divided by how much longer steps of equal shapes took, by the cost
fitted to the first. A run takes some twenty seconds on two quiet cores; with --keep, runs that are there are not made
again.
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

Repeated = list[dict[str, Any]]  # a policy's figures, run by run
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
WORKLOADS = (  # so dense that nearly all have to wait: else two runs of one policy differ as much as two policies
    Workload("chat", CHAT, 0, 8, 0.04, num_requests=140),
    Workload("code", CODE, 0, 8, 0.03, num_requests=140),
    Workload("mooncake", MOONCAKE, 0, 32, 0.1, num_requests=140),
    Workload("servegen", SERVEGEN, 0, 4, 0.05, divide_rate=10),
    Workload("chat, 10 min", CHAT, 600, 8, 0.1),
    Workload("code, 10 min", CODE, 600, 8, 0.2),
    Workload("mooncake, 10 min", MOONCAKE, 600, 32, 0.1),
    Workload("servegen, 8 h", SERVEGEN, 28_800, 4, 0.05, divide_rate=10),
    Workload("chat, 15 min", CHAT, 900, 8, 0.1),
    Workload("code, 15 min", CODE, 900, 8, 0.1),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every ranking agrees, at one speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the traces as published")
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), metavar="N", help="only the first so many")
    parser.add_argument(
        "--policies", nargs="+", default=["fcfs", "priority", "shortest", "deadline"], choices=POLICY_NAMES
    )
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="runs under each policy; default: 2")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the recordings stay")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        keep: Path = args.keep or Path(scratch)
        num_alike = sum(
            [
                _compare(workload, args.folder, args.policies, args.repeats, keep)
                for workload in WORKLOADS[: args.workloads]
            ]
        )
    num_workloads = min(args.workloads, len(WORKLOADS))
    print(f"ranked alike: {num_alike} of {num_workloads} workloads")
    return 0 if num_alike == num_workloads else 1


def _compare(workload: Workload, folder: Path, policies: Sequence[str], repeats: int, keep: Path) -> bool:
    arrivals = workload.arrivals(folder)
    runs: dict[str, list[Path]] = {policy: [] for policy in policies}
    for repeat in range(repeats):  # in turns: a machine's slower minutes befall all of them
        for policy in policies:
            runs[policy].append(_recorded(workload, arrivals, policy, repeat, keep))
    recorded = runs[policies[0]][0]
    predicted: dict[str, dict[str, Any]] = {}
    measured: dict[str, Repeated] = {}
    adjusted: dict[str, Repeated] = {}
    try:
        cost = StepTimes(_samples(recorded)).cost
        for policy in policies:
            answer = what_if(recorded, Question({"scheduling_policy": policy}))
            if policy == policies[0]:
                print(
                    f"{workload.name}: {len(arrivals)} requests, {answer.recorded['steps']} steps; {_control(answer)}"
                )
            predicted[policy] = answer.asked
            measured[policy] = [what_if(run, Question({})).recorded for run in runs[policy]]
            slowness = [_slowness(_samples(run), cost) for run in runs[policy]]
            adjusted[policy] = [_divided(*pair) for pair in zip(measured[policy], slowness, strict=True)]
            print(_line(policy, measured[policy], adjusted[policy], answer.asked), flush=True)
    except CannotCompare as refusal:
        print(f"{workload.name}: {refusal}")
        return False
    as_measured = [_ranked_alike(name, rank, measured, predicted) for name, rank in METRICS[:2]]
    at_one_speed = [_ranked_alike(name, rank, adjusted, predicted, " at one speed") for name, rank in METRICS[:2]]
    print(f"  ranked alike: as measured {as_measured}, at one speed {at_one_speed} (TTFT p50, p99)", flush=True)
    return all(at_one_speed)


def _line(policy: str, measured: Repeated, adjusted: Repeated, predicted: dict[str, Any]) -> str:
    cells = []
    for name, rank in METRICS:
        as_measured, at_one_speed = ([f"{run[name][rank]:,.0f}" for run in runs] for runs in (measured, adjusted))
        cells.append(f"{name} {rank} {' '.join(as_measured)} ({' '.join(at_one_speed)}) | {predicted[name][rank]:,.0f}")
    return f"  {policy:9} measured (at one speed) | predicted, ms:  " + ",  ".join(cells)


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


def _recorded(workload: Workload, arrivals: Sequence[Arrival], policy: str, repeat: int, keep: Path) -> Path:
    target = keep / f"{workload.name}-{policy}-{repeat}".replace(" ", "-").replace(",", "")
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            flags = {"scheduling_policy": policy, "record_content": False, **LIMITS}
            with DaemonProcess(Path(scratch), **flags) as daemon:
                asyncio.run(send_all(daemon.base_url, arrivals))
            shutil.copytree(daemon.recording, target)
    return target


def _ranked_alike(
    name: str, rank: str, measured: dict[str, Repeated], predicted: dict[str, Any], how: str = ""
) -> bool:
    """Over the pairs that the measurement tells apart: every run of one clearly above every run of the other."""
    alike = True
    for left, right in combinations(measured, 2):
        of_left, of_right = ([run[name][rank] for run in measured[policy]] for policy in (left, right))
        least, most = min(of_left) / max(of_right), max(of_left) / min(of_right)
        expected = predicted[left][name][rank] / predicted[right][name][rank]
        if (least > CLEARLY and expected <= 1) or (most < 1 / CLEARLY and expected >= 1):
            alike = False
            print(
                f"  {name} {rank} {left} / {right}: {least:.2f} to {most:.2f} measured{how}, predicted {expected:.2f}"
            )
    return alike


if __name__ == "__main__":
    sys.exit(main())
