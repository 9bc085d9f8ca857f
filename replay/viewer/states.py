"""The core's state at a step, for those who ask: one time machine, in one thread, for it goes on from where it was.

What is read of a state is read there and then; nobody is handed one.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from replay.refusal import CannotCompare
from replay.time_machine.state import State
from replay.time_machine.time_machine import TimeMachine

Found = TypeVar("Found")


class States:
    def __init__(self, recording: Path, folder: Path | None) -> None:
        """`folder`: where the index is kept."""
        self._recording, self._folder = recording, folder
        self._machine: TimeMachine | None = None
        self._thread = ThreadPoolExecutor(1, "time machine")

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
            return of_state(self._machine.at_step(step, life)), ""
        except CannotCompare as refusal:
            return None, f"{refusal.reason}: {refusal.remedy}"
