"""The run on a GPU: a part that fails, dies or hangs does not stop the others, and what each said is kept.

With parts that stand in; the real ones are run dry by the slow test below, as `run.sh --dry-run` does by hand.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.gpu.__main__ import RESULT, ROOT, run_parts, table
from tests.gpu.parts import PARTS, QUICK_SECONDS, TOTAL_SECONDS, Part


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
    result = run_parts([part("hangs_with_a_child")], tmp_path, is_dry=True, total_seconds=4)["hangs_with_a_child"]
    assert result["said"][0] == "it was ended after 4 s"


def test_what_was_known_stays_when_a_part_dies(tmp_path: Path) -> None:
    result = run_parts([part("dies_after_a_figure")], tmp_path, is_dry=True)["dies_after_a_figure"]
    assert not result["holds"]
    assert result["said"] == ["it died with exit code -11; until then: half of it", "and a line"]
    assert result["figures"] == {"half": 1}


def test_a_part_has_what_those_before_it_left_and_takes_nothing_from_those_after(tmp_path: Path) -> None:
    parts = [part("hangs_with_a_child", seconds=3), part("holds", seconds=600)]
    results = run_parts(parts, tmp_path, is_dry=True, total_seconds=603)
    assert results["hangs_with_a_child"]["said"][0] == "it was ended after 3 s"
    assert results["holds"]["holds"]


def test_when_no_time_is_left_a_part_says_so(tmp_path: Path) -> None:
    results = run_parts([part("holds")], tmp_path, is_dry=True, total_seconds=0)
    assert results["holds"]["said"] == ["no time was left"]


def test_all_parts_fit_in_ten_minutes_and_the_quick_ones_in_four() -> None:
    assert sum(each.seconds for each in PARTS) <= TOTAL_SECONDS < 600
    assert sum(each.quick for each in PARTS) <= QUICK_SECONDS < 240
    assert [each.name for each in PARTS[:3]] == ["machine", "rows", "promises"]


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
