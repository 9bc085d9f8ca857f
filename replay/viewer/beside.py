"""Two recordings on one axis: rows that are pairs, and where the two of each part, the first of all first.

Kept until one of them grows. It must not know HTTP.
"""

import threading
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from replay.viewer.differing import Decision, Difference, decisions, differences
from replay.viewer.framing import Array
from replay.viewer.pairing import NOBODY, Pairing, pair
from replay.viewer.viewed import Viewed

MAX_DIFFERENCES = 2_000
BY_DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True)
class Parting:
    """
    row          of `Pairing`
    at_ns        when the first of the two was decided on, on the left one's axis
    difference   its `right` is on that axis, too
    """

    row: int
    at_ns: int
    difference: Difference


class Beside:
    """
    left, right   the recording that is looked at, and the one beside it
    """

    def __init__(self, left: Viewed, right: Viewed) -> None:
        self.left, self.right = left, right
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[tuple[int, int], Pairing, list[Parting]]] = {}

    def life_of(self, life: int) -> int:
        """The other one's life that stands beside this one's."""
        with self.right.every_life() as opened_ns:
            return life if life in opened_ns else max(opened_ns, default=1)

    def told(self, life: int) -> tuple[Pairing, list[Parting]]:
        """Partings in order of time. Raises BadQuestion where that life is not (yet) known."""
        generations = (self.left.generation, self.right.generation)
        with self._lock:
            if life not in self._kept or self._kept[life][0] != generations:
                pairing = self._pair(life)
                self._kept[life] = (generations, pairing, self._part(life, pairing))
            return self._kept[life][1:]

    def rows(self, life: int, group: str, wanted: str) -> Array:
        """Rows of `Pairing` in the order in which they are shown: by the left ones' order, or what parts first."""
        pairing, partings = self.told(life)
        row_of = {left: row for row, left in enumerate(pairing.lefts.tolist()) if left != NOBODY}
        places = self.left.order(life, "none" if group == BY_DIFFERENCE else group, wanted, None)
        shown = [row_of[place] for place in places.tolist() if place in row_of]
        alone = [] if wanted else np.flatnonzero(pairing.lefts == NOBODY).tolist()
        if group == BY_DIFFERENCE:
            among = {*shown, *alone}
            first = [parting.row for parting in partings if parting.row in among]
            parted = set(first)
            return np.array([*first, *[row for row in [*shown, *alone] if row not in parted]], np.int64)
        return np.array([*shown, *alone], np.int64)

    def _pair(self, life: int) -> Pairing:
        other = self.life_of(life)
        lefts, rights = self.left.order(life, "none", "", None), self.right.order(other, "none", "", None)
        with ExitStack() as stack:
            ours = stack.enter_context(self.left.columns(life)).opened_ns
            theirs = stack.enter_context(self.right.columns(other)).opened_ns
            return pair(self.left.requests, lefts, self.right.requests, rights, (ours, theirs))

    def _part(self, life: int, pairing: Pairing) -> list[Parting]:
        numbers, names = _numbers(self.left, pairing.lefts)
        others, other_names = _numbers(self.right, pairing.rights)
        both = [row for row in range(len(numbers)) if numbers[row] >= 0 and others[row] >= 0]
        to_left = {others[row]: numbers[row] for row in both}
        other_names |= {others[row]: names[numbers[row]] for row in both}
        row_of = {number: row for row, number in enumerate(numbers) if number >= 0}
        with self.left.database() as ours, self.right.database() as theirs:
            other_life = self.life_of(life)
            opened = (self.left.opened_ns(life), self.right.opened_ns(other_life))
            right = {
                to_left[number]: [_moved(decision, pairing.shift_ns) for decision in found]
                for number, found in decisions(theirs, other_life, opened[1], other_names)
                if number in to_left
            }
            left = [(number, found) for number, found in decisions(ours, life, opened[0], names) if number in row_of]
        parted = [Parting(row_of[it.request], _first_ns(it), it) for it in differences(left, right)]
        return sorted(parted, key=lambda parting: (parting.at_ns, parting.row))


def _numbers(viewed: Viewed, places: Array) -> tuple[list[int], dict[int, str]]:
    """(number of each place, NOBODY where there is none; number → its id)."""
    with viewed.every_life():
        known = viewed.requests.of("number")
        numbers = [int(known[place]) if place != NOBODY else NOBODY for place in places.tolist()]
        names = {
            number: viewed.requests.ids[place]
            for number, place in zip(numbers, places.tolist(), strict=True)
            if number != NOBODY
        }
    return numbers, names


def _moved(decision: Decision, shift_ns: int) -> Decision:
    return decision._replace(at_ns=decision.at_ns + shift_ns)


def _first_ns(difference: Difference) -> int:
    return min(side.at_ns for side in (difference.left, difference.right) if side is not None)
