"""The kernels give the right numbers, and a row's bits follow from the row alone, as triton's interpreter runs them."""

from pathlib import Path

import pytest

from tests.interpreted import Cases, cases_of, complaints

FOLDER = Path(__file__).parent / "interpreted"
FILES = sorted(path.stem for path in FOLDER.glob("test_*.py"))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return cases_of(FOLDER, tmp_path_factory.mktemp("interpreted") / "report.xml")


@pytest.mark.parametrize("file", FILES)
def test_kernels_hold_in_the_interpreter(file: str, outcomes: Cases) -> None:
    cases = outcomes.get(file, [])
    assert cases, f"{file} ran no case"
    assert not complaints(cases), "\n\n".join(complaints(cases))
