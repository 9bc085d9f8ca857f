"""Tests that run in triton's interpreter, in one process of their own: triton decides when it is imported.

Each file of such a folder is a test of the suite, which fails with what its cases said (`cases_of`, `complaints`).
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]

Cases = dict[str, list[ElementTree.Element]]  # a file's stem → its cases, as the process reported them


def cases_of(folder: Path, report: Path) -> Cases:
    """Run them all; `report` is written."""
    command = [sys.executable, "-m", "pytest", str(folder), "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert report.exists(), f"no report was written:\n{result.stdout}\n{result.stderr}"
    cases: Cases = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place = (case.get("classname") or case.get("name") or "").split(".")
        cases.setdefault(next((part for part in place if part.startswith("test_")), ""), []).append(case)
    assert result.returncode in (0, 1), f"the run broke off:\n{result.stdout}\n{result.stderr}"
    return cases


def complaints(cases: list[ElementTree.Element]) -> list[str]:
    """Of those that failed, or were passed over."""
    return [
        f"{case.get('name')}: {child.get('message')}\n{child.text}"
        for case in cases
        for child in case
        if child.tag in ("failure", "error", "skipped")
    ]
