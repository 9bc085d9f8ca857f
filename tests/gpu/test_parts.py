"""On a GPU every part of `run.sh` must hold. `pytest -m gpu`; without one they are skipped with the reason."""

from pathlib import Path

import pytest

from kernels.cuda_driver import ask_driver
from tests.gpu.__main__ import run_parts
from tests.gpu.parts import PARTS, Part


@pytest.mark.gpu
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_what_is_to_be_shown_on_a_gpu_holds(part: Part, tmp_path: Path) -> None:
    missing = ask_driver().missing
    if missing:
        pytest.skip(f"cuda: {missing}")
    result = run_parts([part], tmp_path, is_dry=False)[part.name]
    assert result["holds"], "\n".join(result["said"])
