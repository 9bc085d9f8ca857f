"""Who is who in two recordings, and records of the one with the request numbers of the other.

By request id where the two share any: clients and traces name their requests. Else by order of arrival.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replay.diff.side import Side

_ONE_REQUEST = ("request", "for_request", "behind")
_ROWS_OF_REQUESTS = ("rows", "new_blocks", "emitted", "filled", "lost")


@dataclass(frozen=True, slots=True)
class Alignment:
    """
    pairs     (number on the left, number on the right), in the left one's order of arrival
    left_only, right_only   request numbers without a partner
    by_id     else by order of arrival
    """

    pairs: tuple[tuple[int, int], ...]
    left_only: tuple[int, ...]
    right_only: tuple[int, ...]
    by_id: bool

    @property
    def to_left(self) -> dict[int, int]:
        return {right: left for left, right in self.pairs}


def align(left: Side, right: Side) -> Alignment:
    number_of = {party.arrived.request_id: number for number, party in right.parties.items()}
    pairs = [
        (number, number_of[party.arrived.request_id])
        for number, party in left.parties.items()
        if party.arrived.request_id in number_of
    ]
    by_id = bool(pairs)
    if not by_id:
        pairs = list(zip(left.parties, right.parties, strict=False))
    lefts, rights = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    return Alignment(
        tuple(pairs),
        tuple([number for number in left.parties if number not in lefts]),
        tuple([number for number in right.parties if number not in rights]),
        by_id,
    )


def renumbered(record: Any, numbers: Mapping[int, int]) -> Any:
    """The record with other request numbers; one without a partner becomes -2 - number, which nobody has."""
    changes: dict[str, Any] = {}
    for name in record._fields:
        value = getattr(record, name)
        if name in _ONE_REQUEST and isinstance(value, int) and value >= 0:
            changes[name] = numbers.get(value, -2 - value)
        elif name in _ROWS_OF_REQUESTS:
            changes[name] = tuple([(numbers.get(row[0], -2 - row[0]), *row[1:]) for row in value])
    return record._replace(**changes) if changes else record
