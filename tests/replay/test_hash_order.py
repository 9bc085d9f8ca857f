"""A decision that depends on hash order is caught by replaying under another PYTHONHASHSEED; the real core never is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay.recorded_runs import mixed_load, record_run

# A scheduler with the very mistake: it takes its rows from a set of names.
_CHECK_WITH_A_SET = """
import sys
from pathlib import Path
from engine.core.limits import Limits
from engine.core.scheduler import Core
from replay.check import check
from tests.replay.recorded_runs import mixed_load, record_run

class SetOrderedCore(Core):
    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        in_order = self.planner._running_by_phase
        def by_hash():
            decodes, prefills = in_order()
            by_name = {request.request_id: request for request in decodes}
            return [by_name[name] for name in set(by_name)], prefills
        self.planner._running_by_phase = by_hash

path = Path(sys.argv[2])
if sys.argv[1] == "record":
    record_run(path, mixed_load(24), make_core=SetOrderedCore)
else:
    verdict = check(path, make_core=SetOrderedCore)
    print(verdict.as_text())
    sys.exit(verdict.exit_code)
"""

ROOT = Path(__file__).parents[2]


def _run(arguments: list[str], hash_seed: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )


def test_a_scheduler_that_iterates_a_set_is_caught_under_another_hash_seed(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    assert _run(["-c", _CHECK_WITH_A_SET, "record", run], "0").returncode == 0
    same = _run(["-c", _CHECK_WITH_A_SET, "check", run], "0")
    assert same.returncode == 0, same.stdout + same.stderr
    other = _run(["-c", _CHECK_WITH_A_SET, "check", run], "1")
    assert other.returncode == 1, other.stdout + other.stderr
    assert "DIVERGED (structural)" in other.stdout
    assert "StepPlanned" in other.stdout


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_honest_core_decides_equally_under_any_hash_seed(hash_seed: str, tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", mixed_load(24))
    done = _run(["-m", "replay", "check", str(run)], hash_seed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_show_and_check_load_no_torch(tmp_path: Path) -> None:
    run = str(record_run(tmp_path / "run", mixed_load(4)))
    program = (
        "import sys\nfrom replay.__main__ import main\n"
        f"assert main(['check', {run!r}]) == 0\nassert main(['show', {run!r}]) == 0\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = _run(["-c", program], "0")
    assert done.returncode == 0, done.stderr
