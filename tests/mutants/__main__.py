"""`python -m tests.mutants [WORD …]`, or `make mutants`: which mistakes the suite notices, one process at a time.

With words only the mutations whose names hold one of them.
"""

import sys
from collections.abc import Sequence

from tests.mutants.killing import (
    Fate,
    copied_tree,
    failing_test,
    fate_of,
    keep_killers,
    known_killers,
    mutated_text,
)
from tests.mutants.mistakes import MUTATIONS

LEAST_KILLED = 0.95


def main(words: Sequence[str]) -> int:
    """Returns the exit code: 0 when enough are killed."""
    chosen = [mutation for mutation in MUTATIONS if not words or any(word in mutation.name for word in words)]
    for mutation in chosen:
        mutated_text(mutation)
    fates: list[Fate] = []
    killers = known_killers()
    with copied_tree() as tree:
        by = failing_test(tree)
        if by:
            print(f"the suite fails without any mistake: {by}")
            return 2
        for mutation in chosen:
            fates.append(fate_of(mutation, tree, killers))
            print(_line(fates[-1]), flush=True)
    keep_killers(fates)
    num_killed = sum(bool(fate.by) for fate in fates)
    print(f"{num_killed} of {len(fates)} killed ({num_killed / max(1, len(fates)):.0%})")
    return 0 if num_killed >= LEAST_KILLED * len(fates) else 1


def _line(fate: Fate) -> str:
    by = fate.by.rpartition("::")[2] if "::" in fate.by else fate.by
    file = fate.mutation.file.removeprefix("engine/core/")
    return f"{file:22} {fate.mutation.name:64} {by or 'SURVIVED'} ({fate.seconds:.0f} s)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
