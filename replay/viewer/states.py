"""The core's state at a step, for those who ask: one time machine, in one thread, for it goes on from where it was.

What is read of a state is read there and then; nobody is handed one. So the core that stands at a step goes on to one
that is a little later: with thousands of requests waiting, to make one anew takes longer than hundreds of steps.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from replay.refusal import CannotCompare
from replay.time_machine.places import Place, of_step
from replay.time_machine.state import State
from replay.time_machine.time_machine import TimeMachine

Found = TypeVar("Found")
MAX_AHEAD = 512  # entries that the core goes on for, rather than be made anew


class States:
    def __init__(self, recording: Path, folder: Path | None) -> None:
        """`folder`: where the index is kept."""
        self._recording, self._folder = recording, folder
        self._machine: TimeMachine | None = None
        self._thread = ThreadPoolExecutor(1, "time machine")
        self._walk: Iterator[State] = iter(())  # the states behind the one below
        self._state: State | None = None

    def read(self, life: int, step: int, of_state: Callable[[State], Found]) -> tuple[Found | None, str]:
        """(what `of_state` makes of the state behind the step's plan, "") or (None, why it is not known)."""
        return self._thread.submit(self._read, life, step, of_state).result()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _knows(machine: TimeMachine, life: int, step: int) -> bool:
        return life <= len(machine.lives) and step <= machine.lives[life - 1].last_step

    def _read(self, life: int, step: int, of_state: Callable[[State], Found]) -> tuple[Found | None, str]:
        try:
            if self._machine is None:
                self._machine = TimeMachine(self._recording, self._folder)
            elif not self._knows(self._machine, life, step):
                self._machine.refresh()
            return of_state(self._at(self._machine, life, step)), ""
        except CannotCompare as refusal:
            self._state = None
            return None, f"{refusal.reason}: {refusal.remedy}"

    def _at(self, machine: TimeMachine, life: int, step: int) -> State:
        """Raises CannotCompare."""
        sequence = of_step(machine.database, machine.extent(life).life, step)
        state = self._state
        if state is None or state.life != life or not 0 <= sequence - state.sequence <= MAX_AHEAD:
            state, self._walk = None, machine.forward(Place(life, sequence - 1))
        self._state = None  # while it goes on it is nobody's
        while state is None or state.sequence < sequence:
            state = next(self._walk, None)
            if state is None:  # what was recorded since the walk began is not on it
                return machine.at_step(step, life)
        self._state = state
        return state
