"""`python -m tests.zoo [WORD …] [--seeds N]`, or `make zoo`: every bug planted, met, found and made small; the table.

With words only the bugs whose names hold one of them. Their stories in `stories/` are written anew. Exit code 1 when
a bug was not met, not repeated every time, left with too many requests or after too long, or when the test that was
exported is not red with it and green without it, every time.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.mutants.killing import copied_tree
from tests.zoo.bugs import BUGS, Bug
from tests.zoo.examine import NUM_REPEATS, Ran, Times, run, run_exported_test
from tests.zoo.stories import write_story
from tests.zoo.tiny_model import write_tiny_model
from tests.zoo.trees import planted

NUM_SEEDS = 20
MOST_REQUESTS, MOST_SECONDS = 3, 600
HEADING = """\
| bug | shows by load | found by | repeated | requests left | tries, seconds | requests | exported test: red, mended |
|---|---|---|---|---|---|---|---|"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    parser.add_argument("--repeats", type=int, default=NUM_REPEATS)
    parser.add_argument("--jobs", type=int, default=1, help="bugs at a time, each in a tree of its own")
    args = parser.parse_args(arguments)
    chosen = [bug for bug in BUGS if not args.words or any(word in bug.name for word in args.words)]
    print(HEADING, flush=True)
    with TemporaryDirectory(prefix="zoo-") as folder, copied_tree() as sound, ThreadPoolExecutor(args.jobs) as pool:
        model = write_tiny_model(Path(folder) / "tiny-model")

        def one(bug: Bug) -> tuple[str, bool]:
            home, tree = Path(folder) / bug.name, Path(folder) / f"tree of {bug.name}"
            shutil.copytree(sound, tree)
            values = examined(bug, tree, home, model, Times(args.seeds, args.repeats))
            if values["shown"]:
                write_story(bug, values, mended(bug, tree, home))
            return row(bug, values), is_good(values)

        num_good = 0
        for line, was_good in pool.map(one, chosen):
            print(line, flush=True)
            num_good += was_good
    return 0 if num_good == len(chosen) else 1


def examined(bug: Bug, tree: Path, home: Path, model: Path, times: Times) -> dict[str, Any]:
    """What `examine.py` finds in the tree with the bug in it, and how the exported test fares in the one without."""
    options = ["--model", str(model), "--seeds", str(times.seeds), "--repeats", str(times.repeats)]
    options += ["--test-runs", str(times.test_runs)]
    with planted(bug, tree):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.zoo.examine", bug.name, str(home), *options],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    values: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    if values["shown"]:
        tested = run_exported_test(home, tree, times.test_runs)
        values |= {"red_mended": tested.red, "mended_last": tested.last._asdict()}
    return values


def mended(bug: Bug, tree: Path, home: Path) -> Ran:
    """What the small recording is to a tree without the bug."""
    verb = "execute" if bug.proof == "execute" else "check"
    ran = run(f"{verb} small", home, engine=tree)
    if bug.proof == "execute" and ran.code == 0:  # the decisions were wrong, and were followed rightly
        return run("check small", home, engine=tree)
    return ran


def is_good(values: dict[str, Any]) -> bool:
    if not values["shown"] or values["repeated"] < values["repeats"]:
        return False
    shrunk = values["shrunk"]
    is_small = shrunk["after"]["requests"] <= MOST_REQUESTS and shrunk["seconds"] <= MOST_SECONDS
    is_kept = values["red"] == values["test_runs"] and values["red_mended"] == 0
    return bool(shrunk["is_minimal"]) and is_small and is_kept


def row(bug: Bug, values: dict[str, Any]) -> str:
    return f"| {' | '.join([bug.name.replace('-', ' '), *_cells(bug, values)])} |"


def _cells(bug: Bug, values: dict[str, Any]) -> Iterator[str]:
    yield f"{values['shown']} of {values['seeds']}"
    if not values["shown"]:
        return
    shrunk = values["shrunk"]
    yield f"`{bug.find.split()[0]}`"
    yield f"{values['repeated']} of {values['repeats']}"
    yield f"{shrunk['before']['requests']} → {shrunk['after']['requests']}"
    yield f"{shrunk['tries']}, {shrunk['seconds']:.0f} s"
    yield ", ".join(str(request["request"]) for request in shrunk["requests"])
    kilobytes = values["fixture_bytes"] / 1_000
    num_runs = values["test_runs"]
    yield f"{values['red']} of {num_runs}, {values['red_mended']} of {num_runs}; {kilobytes:.1f} kB"


if __name__ == "__main__":
    sys.exit(main())
