"""The kernels give the right numbers, and a row's bits follow from the row alone, as triton's interpreter runs them.

Triton decides when it is imported whether kernels are interpreted, so the cases under `interpreted/` run in one process
of their own, once; each file of them is a test here, which fails with what its cases said.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parent / "interpreted"
FILES = sorted(path.stem for path in FOLDER.glob("test_*.py"))
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ElementTree.Element]]:
    """Each file's cases, as the process reported them."""
    report = tmp_path_factory.mktemp("interpreted") / "report.xml"
    command = [sys.executable, "-m", "pytest", str(FOLDER), "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert report.exists(), f"no report was written:\n{result.stdout}\n{result.stderr}"
    cases: dict[str, list[ElementTree.Element]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place = (case.get("classname") or case.get("name") or "").split(".")
        cases.setdefault(next((part for part in place if part.startswith("test_")), ""), []).append(case)
    assert result.returncode in (0, 1), f"the run broke off:\n{result.stdout}\n{result.stderr}"
    return cases


@pytest.mark.parametrize("file", FILES)
def test_kernels_hold_in_the_interpreter(file: str, outcomes: dict[str, list[ElementTree.Element]]) -> None:
    cases = outcomes.get(file, [])
    assert cases, f"{file} ran no case"
    said = [
        f"{case.get('name')}: {child.get('message')}\n{child.text}"
        for case in cases
        for child in case
        if child.tag in ("failure", "error", "skipped")
    ]
    assert not said, "\n\n".join(said)
