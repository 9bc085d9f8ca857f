"""The entries that concern one request, found by the index: of a million that it waited through, its own thousands.

Those are its arrival, what was decided about it, the steps that it had a row in, and what may concern anybody: gaps,
restarts, blocks that did not hold what they should. Some others come along. It must not know what they are read for.
"""

import sqlite3
from collections.abc import Iterator

from engine.core.vocabulary import Entry
from replay.lives import Life
from replay.viewer.viewed import Viewed

NEAR = 256  # entries between two stretches that are read along rather than sought past
_CONCERNED = """
SELECT sequence AS first, sequence AS last FROM requests WHERE life = :life AND number = :request
UNION ALL
SELECT sequence, sequence FROM decisions WHERE life = :life AND request = :request
UNION ALL
SELECT sequence, sequence FROM preemptions WHERE life = :life AND beneficiary = :request
UNION ALL
SELECT sequence, sequence FROM marks
    WHERE life = :life AND (request = :request OR kind IN ('gap', 'mismatch', 'restart'))
UNION ALL
SELECT (SELECT sequence FROM steps WHERE life = :life AND step = s.from_step),
       (SELECT coalesce(completed_sequence, :end) FROM steps WHERE life = :life AND step = s.to_step)
FROM slices s WHERE s.life = :life AND s.request = :request AND s.kind IN ('prefill', 'decode')
UNION ALL
SELECT last_sequence + 1, :end FROM lives WHERE life = :life
ORDER BY 1
"""
_END = 2**62


def entries_of_request(viewed: Viewed, number: int, life: Life, request: int) -> Iterator[Entry]:
    """In order; of the engine process `life`, the run's number `number`. Where the index cannot tell, all there are."""
    stretches = None if viewed.state.state == "building" else _stretches(viewed, number, request)
    if stretches is None:
        yield from life.entries_about(request)
        return
    for first, last in stretches:
        for entry in life.entries(first):
            if entry.sequence > last:
                break
            yield entry


def _stretches(viewed: Viewed, life: int, request: int) -> list[tuple[int, int]] | None:
    """[first, last] sequences, ascending, apart from each other; None where one is not known."""
    with viewed.database() as database:
        return _joined(database, {"life": life, "request": request, "end": _END})


def _joined(database: sqlite3.Connection, values: dict[str, int]) -> list[tuple[int, int]] | None:
    found: list[tuple[int, int]] = []
    for first, last in database.execute(_CONCERNED, values):
        if first is None or last is None:
            return None
        if found and first <= found[-1][1] + NEAR:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((max(0, first), last))
    return found or None
