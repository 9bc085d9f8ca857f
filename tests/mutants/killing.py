"""A mutation, a copy of the tree with it, and whether a fast part of the suite notices.

Whoever noticed it last time is asked first (`killers.json`, which a whole run writes anew); the rest of the suite only
where that one is silent.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from engine.clock import SystemClock
from tests.mutants.mutation import Mutation

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("engine", "recorder", "replay", "daemon", "kernels", "tests", "pyproject.toml")
SUITE = (  # the quickest first
    "tests/core/test_scheduler_stories.py",
    "tests/core/test_policy_stories.py",
    "tests/core/test_admission.py",
    "tests/core/test_thrash.py",
    "tests/core/test_phases.py",
    "tests/core/test_step_time.py",
    "tests/core",
    "tests/simulation/test_oversubscribed.py",
    "tests/simulation/test_simulation.py::test_random_runs_keep_every_promise_and_replay_to_equal_records[0]",
    "tests/simulation/test_simulation.py::test_long_runs_of_counts_keep_every_promise[0]",
)
KILLERS = ROOT / "tests" / "mutants" / "killers.json"
_USAGE = 4  # pytest's exit code
MAX_SECONDS = 150  # a mutant that never comes to an end is killed, in both senses


class NotApplicable(Exception):
    """The text to be replaced does not occur exactly once."""


class Fate(NamedTuple):
    """
    by    the test that failed; "" when the mutant survived
    """

    mutation: Mutation
    by: str
    seconds: float


def mutated_text(mutation: Mutation, tree: Path = ROOT) -> str:
    """The file's text with the mistake in it. Raises NotApplicable, naming the mutation."""
    text = (tree / mutation.file).read_text("utf-8")
    num_places = text.count(mutation.old)
    if num_places != 1:
        raise NotApplicable(
            f"mutation {mutation.name!r}: {mutation.file} holds its text {num_places} times, not once: "
            f"follow the code in tests/mutants/mistakes\n{mutation.old}"
        )
    return text.replace(mutation.old, mutation.new)


@contextmanager
def copied_tree() -> Iterator[Path]:
    with TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so", "build"))
            else:
                shutil.copy(source, target)
        yield Path(folder)


def known_killers() -> dict[str, str]:
    """Mutation → the test that noticed it last time."""
    killers: dict[str, str] = json.loads(KILLERS.read_text("utf-8"))
    return killers


def keep_killers(fates: Sequence[Fate]) -> None:
    """Of the mutations that were made now; what is known of others stays."""
    killers = {**known_killers(), **{fate.mutation.name: fate.by for fate in fates if "::" in fate.by}}
    KILLERS.write_text(json.dumps(dict(sorted(killers.items())), indent=1) + "\n", "utf-8")


def failing_test(tree: Path, tests: Sequence[str] = SUITE) -> str:
    """The first of the tests that fails in `tree`; "" when all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            command, cwd=tree, env=environment, timeout=MAX_SECONDS, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {MAX_SECONDS} s"
    if ran.returncode == 0:
        return ""
    if ran.returncode == _USAGE and "not found: " in ran.stderr:  # the killer of old is gone
        return ""
    told = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    failed = [line for line in told if "::" in line]  # else a file of tests could not even be read
    assert failed, f"the suite could not be run:\n{ran.stdout}\n{ran.stderr}"
    return failed[0].split(" ")[1]


def fate_of(mutation: Mutation, tree: Path, killers: Mapping[str, str]) -> Fate:
    """Leaves `tree` as it was."""
    path = tree / mutation.file
    original = path.read_text("utf-8")
    clock = SystemClock()
    began_ns = clock.now_ns()
    path.write_text(mutated_text(mutation, tree), "utf-8")
    try:
        killer = killers.get(mutation.name)
        by = (failing_test(tree, (killer,)) if killer else "") or failing_test(tree)
    finally:
        path.write_text(original, "utf-8")
    return Fate(mutation, by, (clock.now_ns() - began_ns) / 1e9)
