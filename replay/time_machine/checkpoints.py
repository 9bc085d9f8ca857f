"""Frozen states made on the way, so that whoever comes by again need not come from far. It must not know recordings."""

from bisect import bisect_right

from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.freezing import State, freeze
from engine.core.scheduler import Core

FIRST_SPACING = 256  # entries between two
ENTRIES_PER_REQUEST = 2  # to freeze many live requests takes longer than to play some entries
MAX_CHECKPOINTS = 128
SHORT_OF_AIM = 96  # entries: whoever came here steps back next, and begins there instead of far away
MAX_REQUESTS_SHORT_OF_AIM = 8_000  # of more freezing takes longer than the way that it saves


class Checkpoints:
    """Of one life. When there are too many every second one goes, and they lie twice as far apart from then on."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}  # sequence of the entry behind it → state
        self._sequences: list[int] = []  # in order
        self._spacing = FIRST_SPACING
        self._base = 0
        self._aim = 0
        self._can_freeze = True

    def nearest(self, sequence: int) -> int | None:
        """The last one before or at this entry."""
        place = bisect_right(self._sequences, sequence)
        return self._sequences[place - 1] if place else None

    def state(self, sequence: int) -> State:
        return self._states[sequence]

    def pass_by(self, core: Core, sequence: int) -> None:
        """The core is about to be given this entry."""
        last = self.nearest(sequence)
        num_requests = len(core.requests)
        if sequence == self._aim - SHORT_OF_AIM and num_requests <= MAX_REQUESTS_SHORT_OF_AIM:
            if sequence - (self._base if last is None else max(last, self._base)) >= SHORT_OF_AIM:
                self.keep(core, sequence)
            return
        spacing = max(self._spacing, ENTRIES_PER_REQUEST * num_requests)
        if sequence - (self._base if last is None else max(last, self._base)) >= spacing:
            self.keep(core, sequence)

    def begin_at(self, sequence: int, aim: int) -> None:
        """The core that will pass by comes from there, and goes to the entry `aim`."""
        self._base, self._aim = sequence, aim

    def keep(self, core: Core, sequence: int) -> None:
        """Whatever the spacing; nothing happens where an operator's own policy cannot be frozen, or blocks are lost: of
        such a state no core is made."""
        if sequence in self._states or not self._can_freeze:
            return
        try:
            core.check_invariants()
            self._states[sequence] = freeze(core)
        except KeyframeError:
            self._can_freeze = False
            return
        except AssertionError:
            return
        place = bisect_right(self._sequences, sequence)
        self._sequences.insert(place, sequence)
        if len(self._sequences) > MAX_CHECKPOINTS:
            self._thin_out()

    def _thin_out(self) -> None:
        self._spacing *= 2
        self._sequences = self._sequences[::2]
        self._states = {sequence: self._states[sequence] for sequence in self._sequences}
