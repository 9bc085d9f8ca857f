"""Frozen states made on the way, so that whoever comes by again need not come from far. It must not know recordings."""

from bisect import bisect_right

from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.freezing import State, freeze
from engine.core.scheduler import Core

FIRST_SPACING = 256  # entries between two
MAX_CHECKPOINTS = 128


class Checkpoints:
    """Of one life. When there are too many every second one goes, and they lie twice as far apart from then on."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}  # sequence of the entry behind it → state
        self._sequences: list[int] = []  # in order
        self._spacing = FIRST_SPACING
        self._can_freeze = True

    def nearest(self, sequence: int) -> int | None:
        """The last one before or at this entry."""
        place = bisect_right(self._sequences, sequence)
        return self._sequences[place - 1] if place else None

    def state(self, sequence: int) -> State:
        return self._states[sequence]

    def pass_by(self, core: Core, sequence: int) -> None:
        """The core is about to be given this entry."""
        if sequence % self._spacing == 0:
            self.keep(core, sequence)

    def keep(self, core: Core, sequence: int) -> None:
        """Whatever the spacing; nothing happens where an operator's own policy cannot be frozen."""
        if sequence in self._states or not self._can_freeze:
            return
        try:
            self._states[sequence] = freeze(core)
        except KeyframeError:
            self._can_freeze = False
            return
        place = bisect_right(self._sequences, sequence)
        self._sequences.insert(place, sequence)
        if len(self._sequences) > MAX_CHECKPOINTS:
            self._thin_out()

    def _thin_out(self) -> None:
        self._spacing *= 2
        self._sequences = self._sequences[::2]
        self._states = {sequence: self._states[sequence] for sequence in self._sequences}
