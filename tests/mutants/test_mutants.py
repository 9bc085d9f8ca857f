"""The suite notices mistakes: each mutation can be made, and with most of them a test fails."""

import ast

import pytest

from tests.mutants.__main__ import LEAST_KILLED
from tests.mutants.killing import NotApplicable, copied_tree, failing_test, fate_of, known_killers, mutated_text
from tests.mutants.mistakes import MUTATIONS
from tests.mutants.mutation import Mutation


def test_every_mutation_can_be_made_in_the_code_as_it_is() -> None:
    assert len(MUTATIONS) >= 100
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    for mutation in MUTATIONS:
        assert mutation.new != mutation.old
        ast.parse(mutated_text(mutation))


def test_a_mutation_that_no_longer_fits_the_code_is_named() -> None:
    with pytest.raises(NotApplicable, match=r"'an old mistake'.*kv_cache\.py holds its text 0 times"):
        mutated_text(Mutation("an old mistake", "engine/core/kv_cache.py", "no such text", ""))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_the_suite_kills_most_mutants() -> None:
    with copied_tree() as tree:
        assert failing_test(tree) == ""
        survivors = [mutation.name for mutation in MUTATIONS if not fate_of(mutation, tree, known_killers()).by]
    assert len(survivors) <= (1 - LEAST_KILLED) * len(MUTATIONS), survivors
