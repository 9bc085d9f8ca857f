"""The engine on the cuda backend, as triton's interpreter runs it: its steps, and the promises on a tiny model."""

from pathlib import Path

import pytest

from tests.interpreted import Cases, cases_of, complaints

FOLDER = Path(__file__).parent / "interpreted"
FILES = sorted(path.stem for path in FOLDER.glob("test_*.py"))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return cases_of(FOLDER, tmp_path_factory.mktemp("interpreted") / "report.xml")


@pytest.mark.parametrize("file", FILES)
def test_the_cuda_backend_holds_in_the_interpreter(file: str, outcomes: Cases) -> None:
    cases = outcomes.get(file, [])
    assert cases, f"{file} ran no case"
    assert not complaints(cases), "\n\n".join(complaints(cases))
