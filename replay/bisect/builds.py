"""One recording on two builds that can both execute it: the first step, row, layer and operation that they differ in.

Each side is run twice: once for the running digests, once up to the step that halving finds.
"""

from typing import NamedTuple, Protocol

from replay.bisect.halving import first_unequal
from replay.model_runs.step_trace import ChainLink, Moved, StepKey, TracedRow, name_of_place
from replay.proof import OperationPlace

DRAW = "draw"  # after the head, of equal logits


class Side(Protocol):
    """A build with a recording; `StepTracer` is one in this process."""

    def chain(self, moved: Moved) -> list[ChainLink]: ...

    def rows(self, key: StepKey, moved: Moved) -> tuple[list[TracedRow], int]: ...


class OperationDigests(NamedTuple):
    """One operation's result on one row, on one of the sides."""

    request: int
    position: int
    layer: int
    operation: str
    digest: str


class Parting(NamedTuple):
    """Where two builds part; expected is the left one's, got the right one's."""

    key: StepKey
    place: OperationPlace
    expected: OperationDigests
    got: OperationDigests


def where_they_part(left: Side, right: Side, moved: Moved = lambda count: None) -> tuple[Parting | None, int]:
    """The first difference, None where there is none; and how many steps were compared."""
    chains = [side.chain(moved) for side in (left, right)]
    digests = [[link.digest for link in chain] for chain in chains]
    index = first_unequal(digests[0], digests[1])
    num_compared = min(len(chain) for chain in chains)
    if index is None or index >= num_compared:  # one side leaves the recording later, after equal steps: it cannot be
        return None, num_compared
    key = chains[0][index].key
    (left_rows, num_layers), (right_rows, _) = (side.rows(key, moved) for side in (left, right))
    return _first(key, left_rows, right_rows, num_layers), index + 1


def _first(key: StepKey, left: list[TracedRow], right: list[TracedRow], num_layers: int) -> Parting | None:
    """In the order of computation: the first operation that differs in any row, there the first row."""
    others = {row[:2]: row for row in right}
    found: list[tuple[int, int]] = []  # place, row
    for number, row in enumerate(left):
        other = others.get(row[:2])
        place = None if other is None else _first_place(row, other)
        if place is not None:
            found.append((place, number))
    if not found:
        return None
    place, number = min(found)
    row, other = left[number], others[left[number][:2]]
    is_draw = place == len(row.digests)
    layer, operation = (-1, DRAW) if is_draw else name_of_place(place, num_layers)
    texts = [side.drawn if is_draw else f"{side.digests[place]:016x}" for side in (row, other)]
    expected, got = (OperationDigests(row.request, row.position, layer, operation, text) for text in texts)
    return Parting(key, OperationPlace(key.step, row.request, row.position, layer, operation), expected, got)


def _first_place(left: TracedRow, right: TracedRow) -> int | None:
    """Index of the first unequal digest; their number where only what was drawn differs."""
    for place, (one, another) in enumerate(zip(left.digests, right.digests, strict=True)):
        if one != another:
            return place
    return len(left.digests) if left.drawn != right.drawn else None
