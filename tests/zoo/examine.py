"""One bug of the zoo examined, within a tree that has it: `python -m tests.zoo.examine NAME FOLDER [--model M] …`.

Prints what is known of it as one JSON object. The commands are those that an operator would give.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from replay.check import check
from replay.model_runs.open_model import Overrides
from replay.model_runs.stage import ModelStage
from replay.shrink.evidence import Stage, evidences_of
from replay.shrink.invariants import Finding
from replay.shrink.predicates import parse
from tests.zoo.bugs import BUGS, Bug
from tests.zoo.serving import serve

NUM_REPEATS = 20
NUM_TEST_RUNS = 3
EXPORTED = "exported"


class Times(NamedTuple):
    """How often: loads are served, the failure is repeated, the exported test is run on each side."""

    seeds: int
    repeats: int = NUM_REPEATS
    test_runs: int = NUM_TEST_RUNS


class Ran(NamedTuple):
    """A command and what it printed."""

    command: str
    code: int
    text: str


class Tested(NamedTuple):
    """
    red    how often the exported test failed
    last   the last run of it
    """

    red: int
    last: Ran


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.examine", description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=NUM_REPEATS)
    parser.add_argument("--test-runs", type=int, default=NUM_TEST_RUNS)
    args = parser.parse_args(arguments)
    bug = next(bug for bug in BUGS if bug.name == args.name)
    print(json.dumps(examine(bug, args.folder, args.model, Times(args.seeds, args.repeats, args.test_runs))))
    return 0


def examine(bug: Bug, folder: Path, model: Path | None, times: Times) -> dict[str, Any]:
    """Serve seed after seed; take the first recording that fails through the verbs."""
    folder.mkdir(parents=True, exist_ok=True)
    findings: dict[int, Finding] = {}
    stage: Stage | None = None
    for seed in range(times.seeds):
        recording = record(bug, folder, model, seed)
        if bug.uses_model and stage is None:
            stage = ModelStage(evidences_of(recording)[0].header, Overrides())
        if finding := found_in(recording, bug, stage):
            findings[seed] = finding
    values: dict[str, Any] = {"name": bug.name, "seeds": times.seeds, "shown": len(findings)}
    if not findings:
        return values
    seed, finding = next(iter(findings.items()))
    name = f"seed-{seed}"
    find = run(bug.find.format(rec=name, request=finding.request), folder)
    promise = parse("invariant-broken").find(evidences_of(folder / name)[0])
    predicate = shlex.quote(bug.predicate)
    jobs = " --jobs 1" if bug.at_pace else ""
    shrink = run(f"shrink {name} --fails-with {predicate} -o small --json{_pace(bug)}{jobs}", folder)
    export = run(f"export small --pytest {EXPORTED} --fails-with {predicate}{_pace(bug)}", folder)
    tested = run_exported_test(folder, Path.cwd(), times.test_runs)
    return values | {
        "recording": name,
        "finding": finding.text,
        "request": finding.request,
        "find": find._asdict(),
        "repeats": times.repeats,
        "repeated": num_repeated(bug, folder, name, times.repeats),
        "promise": promise.text if promise else "",
        "shrink": shrink.command.replace(" --json", ""),
        "shrunk": json.loads(shrink.text),
        "export": export._asdict(),
        "fixture_bytes": (folder / EXPORTED / "small.rps").stat().st_size,
        "test_runs": times.test_runs,
        "red": tested.red,
        "red_last": tested.last._asdict(),
    }


def record(bug: Bug, folder: Path, model: Path | None, seed: int) -> Path:
    """The recording of one seed's load, with this tree's engine."""
    load, served = bug.load, model if bug.uses_model else None
    return serve(folder / f"seed-{seed}", load.messages(seed), load.limits, served, at_pace=bug.at_pace)


def found_in(recording: Path, bug: Bug, stage: Stage | None) -> Finding | None:
    """What the predicate finds in the recording as it is, nothing performed again."""
    predicate = parse(bug.predicate)
    (evidence,) = evidences_of(recording, with_contents=predicate.needs_model)
    evidence.stage = stage if predicate.needs_model else None
    return predicate.find(evidence)


def num_repeated(bug: Bug, folder: Path, recording: str, num_repeats: int) -> int:
    """How often the verb that proves it does: the very failure comes again, or check diverges in another process."""
    path = folder / recording
    if bug.proof == "execute":
        stage = ModelStage(evidences_of(path)[0].header, Overrides())
        return sum(stage.execute(path).exit_code == 0 for _ in range(num_repeats))
    if bug.proof == "check":
        return sum(check(path).exit_code == 0 for _ in range(num_repeats))
    under_two_seeds = (range(2 * repeat, 2 * repeat + 2) for repeat in range(num_repeats))  # as P2 says of `check`
    return sum(any(run(f"check {recording}", folder, seed).code == 1 for seed in seeds) for seeds in under_two_seeds)


def run(command: str, folder: Path, hash_seed: int | None = None, engine: Path | None = None) -> Ran:
    """`reprise COMMAND` in the folder, with the engine of that tree, else of this one."""
    environment = {**os.environ, "PYTHONPATH": str(engine or Path.cwd())}
    if hash_seed is not None:
        environment["PYTHONHASHSEED"] = str(hash_seed)
    arguments = shlex.split(command)
    ran = subprocess.run(
        [sys.executable, "-m", "replay", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stderr
    return Ran(f"reprise {command}", ran.returncode, ran.stdout)


def run_exported_test(folder: Path, engine: Path, num_runs: int) -> Tested:
    """The exported test with the engine of that tree, each time in a process with a hash seed of its own."""
    command = f"pytest -q --no-header --tb=line -p no:cacheprovider {EXPORTED}"
    red = 0
    for hash_seed in range(num_runs):
        environment = {**os.environ, "PYTHONPATH": str(engine), "PYTHONHASHSEED": str(hash_seed)}
        ran = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode in (0, 1), ran.stdout + ran.stderr
        red += ran.returncode
    return Tested(red, Ran(f"pytest -q {EXPORTED}", ran.returncode, ran.stdout))


def _pace(bug: Bug) -> str:
    return " --at-pace" if bug.at_pace else ""


if __name__ == "__main__":
    sys.exit(main())
