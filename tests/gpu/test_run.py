"""The run on a GPU: a part that fails, dies or hangs does not stop the others, and what each said is kept.

With parts that stand in; the real ones are run dry by the slow test below, as `run.sh --dry-run` does by hand.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.gpu.__main__ import RESULT, ROOT, run_parts, table
from tests.gpu.parts import PARTS, TOTAL_SECONDS, Part


def part(name: str, seconds: int = 60) -> Part:
    return Part(name, "a stand-in", seconds, f"tests.gpu.stand_in_parts:{name}")


def test_what_breaks_does_not_stop_the_others(tmp_path: Path) -> None:
    names = ["does_not_hold", "raises", "dies", "holds"]
    results = run_parts([part(name) for name in names], tmp_path, is_dry=True)
    assert [results[name]["holds"] for name in names] == [False, False, False, True]
    assert results["does_not_hold"]["said"] == ["one bit differs", "this one"]
    assert results["raises"]["said"][-1] == "ValueError: a kernel that cannot be compiled"
    assert results["dies"]["said"][0] == "it died with exit code -11"
    assert results["holds"]["figures"] == {"answer": 42}
    kept = json.loads((tmp_path / RESULT).read_text("utf-8"))
    assert kept["dry_run"] is True
    assert kept["parts"] == results
    assert [line.split()[:2] for line in table(results).splitlines()[1:]] == [
        *(["does_not_hold", "NO"], ["raises", "NO"], ["dies", "NO"], ["holds", "yes"]),
    ]


def test_a_part_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    result = run_parts([part("hangs_with_a_child", seconds=5)], tmp_path, is_dry=True)["hangs_with_a_child"]
    assert result["said"][0] == "it was ended after 5 s"


def test_when_no_time_is_left_a_part_says_so(tmp_path: Path) -> None:
    results = run_parts([part("holds")], tmp_path, is_dry=True, total_seconds=0)
    assert results["holds"]["said"] == ["no time was left"]


def test_the_most_important_parts_fit_in_ten_minutes_whatever_they_take() -> None:
    assert TOTAL_SECONDS < 600
    before = 0
    for each in PARTS[:5]:
        before += each.seconds
        assert before < TOTAL_SECONDS


@pytest.mark.slow
def test_the_whole_script_runs_dry(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / "tests/gpu/run.sh"), "--dry-run", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((tmp_path / RESULT).read_text("utf-8"))
    assert list(kept["parts"]) == [each.name for each in PARTS]
    assert all(result["holds"] for result in kept["parts"].values())
    assert done.stdout.splitlines()[-len(PARTS) - 1].startswith("part ")
