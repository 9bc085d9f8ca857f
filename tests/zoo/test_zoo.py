"""The zoo's bugs can be planted in the code as it is, and the tools find two of them; `make zoo` shows all."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.cuda_driver import ask_driver
from tests.mutants.killing import copied_tree
from tests.zoo.__main__ import examined, is_good, mended
from tests.zoo.bugs import BUGS, Bug
from tests.zoo.examine import Times
from tests.zoo.serving import BACKEND_VARIABLE, serve
from tests.zoo.stories import STORIES
from tests.zoo.tiny_model import write_tiny_model
from tests.zoo.trees import planted

NUM_SEEDS = 6  # the last of them meets the rarer of the two
FOUND_AT_ONCE = "off-by-one-at-a-block-boundary"


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied_tree() as tree:
        yield tree


def bug_named(name: str) -> Bug:
    return next(bug for bug in BUGS if bug.name == name)


def test_every_bug_can_be_planted_in_the_code_as_it_is_and_leaves_no_trace(tree: Path) -> None:
    assert len(BUGS) >= 12
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    for bug in BUGS:
        before = {mutation.file: (tree / mutation.file).read_text("utf-8") for mutation in bug.patch}
        with planted(bug, tree):
            for file, text in before.items():
                changed = (tree / file).read_text("utf-8")
                assert changed != text
                ast.parse(changed)
        assert before == {file: (tree / file).read_text("utf-8") for file in before}


def test_every_bug_has_its_story() -> None:
    assert {path.stem for path in STORIES.glob("*.md")} == {bug.name for bug in BUGS}


def test_a_load_is_the_same_in_each_run(tmp_path: Path) -> None:
    load = bug_named("over-admission").load
    first = serve(tmp_path / "one", load.messages(3), load.limits, None)
    again = serve(tmp_path / "two", load.messages(3), load.limits, None)
    assert [path.stat().st_size for path in first.glob("*.rps")] == [
        path.stat().st_size for path in again.glob("*.rps")
    ]


@pytest.mark.parametrize("name", ["over-admission", FOUND_AT_ONCE])
def test_a_bug_is_met_found_repeated_and_made_small(name: str, tree: Path, tmp_path: Path) -> None:
    bug = bug_named(name)
    model = write_tiny_model(tmp_path / "tiny-model")
    values = examined(bug, tree, tmp_path / name, model, Times(NUM_SEEDS, 2, 1))
    assert is_good(values), values
    assert values["shrunk"]["after"]["requests"] <= 2
    assert mended(bug, tree, tmp_path / name).code == 1


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name, marks=() if bug.name == FOUND_AT_ONCE else pytest.mark.slow)
        for bug in BUGS
        if bug.uses_model
    ],
)
def test_a_bug_in_execution_is_found_on_cuda_too(
    bug: Bug, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := ask_driver().missing:
        pytest.skip(f"cuda: {missing}")
    monkeypatch.setenv(BACKEND_VARIABLE, "cuda")
    model = write_tiny_model(tmp_path / "tiny-model")
    values = examined(
        bug, tree, tmp_path / bug.name, model, Times(20 if bug.name != FOUND_AT_ONCE else NUM_SEEDS, 2, 1)
    )
    assert is_good(values), values


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_is_met_found_repeated_and_made_small(bug: Bug, tree: Path, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny-model")
    assert is_good(examined(bug, tree, tmp_path / bug.name, model, Times(20)))
