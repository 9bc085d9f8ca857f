"""A copy of the tree with one bug in it, as `tests/mutants` makes one; taken out again afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.killing import mutated_text
from tests.zoo.bugs import Bug


@contextmanager
def planted(bug: Bug, tree: Path) -> Iterator[None]:
    """Within, `tree` has the bug. Raises NotApplicable where the code has moved on."""
    originals = {mutation.file: (tree / mutation.file).read_text("utf-8") for mutation in bug.patch}
    try:
        for mutation in bug.patch:
            text = mutated_text(mutation._replace(name=bug.name), tree)
            (tree / mutation.file).write_text(text, "utf-8")
        yield
    finally:
        for file, text in originals.items():
            (tree / file).write_text(text, "utf-8")
