"""Who is who in two recordings: requests of one name, else of the same place in the order of arrival.

Times of the other recording are told on this one's axis: moved so that the first two of a pair arrive together. It
must not know what differs.
"""

from dataclasses import dataclass

import numpy as np

from replay.viewer.framing import Array
from replay.viewer.requests import RequestColumns

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Pairing:
    """
    lefts, rights   places of requests in the two recordings, by row of all pairs: those of the left one in its order of
                    arrival, then those that only the right one has; NOBODY where there is none
    by_id           else by order of arrival
    shift_ns        what is added to the other's times
    """

    lefts: Array
    rights: Array
    by_id: bool
    shift_ns: int


def pair(
    left: RequestColumns, lefts: Array, right: RequestColumns, rights: Array, opened_ns: tuple[int, int]
) -> Pairing:
    """lefts, rights: places of all that are compared, by arrival; opened_ns: of the two lives."""
    waiting: dict[str, list[int]] = {}
    for place in rights.tolist()[::-1]:
        waiting.setdefault(right.ids[place], []).append(place)
    partners = [waiting[name].pop() if waiting.get(name := left.ids[place]) else NOBODY for place in lefts.tolist()]
    by_id = any(partner != NOBODY for partner in partners)
    if not by_id:
        partners = [*rights.tolist(), *[NOBODY] * len(lefts)][: len(lefts)]
    taken = np.isin(rights, partners)
    of_left = np.concatenate((lefts, np.full(int((~taken).sum()), NOBODY)))
    of_right = np.concatenate((np.array(partners, np.int64), rights[~taken]))
    return Pairing(of_left, of_right, by_id, _shift_ns(left, right, of_left, of_right, opened_ns))


def _shift_ns(
    left: RequestColumns, right: RequestColumns, lefts: Array, rights: Array, opened_ns: tuple[int, int]
) -> int:
    both = np.flatnonzero((lefts != NOBODY) & (rights != NOBODY))
    if not len(both):
        return 0
    ours = int(left.of("arrival_ns")[lefts[both[0]]]) - opened_ns[0]
    return ours - (int(right.of("arrival_ns")[rights[both[0]]]) - opened_ns[1])
