"""`python -m replay.viewer.indexing REC`: keeps a recording's index up to date, in a process of its own.

A process and not a thread: entries are read in Python, and would hold the interpreter's lock against those who ask the
viewer at the same time. It runs at a low priority as soon as there is something to look at, says on stdout what it has
done, one JSON object a line, and ends when its stdin does, so that it never outlives who started it.
"""

import contextlib
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

from engine.core.errors import EngineError
from replay.index.recording_index import RecordingIndex
from replay.viewer.recorder_at_work import is_recorded_into

NICENESS = 10
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.25, 2.0


def main(arguments: list[str]) -> int:
    recording, folder = Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else None
    try:
        index = RecordingIndex(recording, folder)
        with contextlib.suppress(Abandoned):
            _keep(index, recording)
    except (EngineError, OSError) as error:
        _say(state="failed", error=str(error))
        return 1
    return 0


def _keep(index: RecordingIndex, recording: Path) -> None:
    wait_s = SHORTEST_WAIT_S
    told = Told()
    while True:
        used_before_s = _used_s()
        is_live = is_recorded_into(recording)
        num_entries = index.update(told.building)
        told.up_to_date(num_entries, is_live)
        wait_s = SHORTEST_WAIT_S if num_entries else min(2 * wait_s, LONGEST_WAIT_S)
        if _has_ended(max(wait_s, (_used_s() - used_before_s) / 2)):  # at most two thirds of a core
            return


class Told:
    """What whoever started this knows of; in increments of entries. Raises Abandoned when nobody listens any more."""

    def __init__(self) -> None:
        self._num_told = 0
        self._is_first = True
        self._stands_back = False

    def building(self, num_read: int, fraction: float) -> None:
        """Of the first update, which may take minutes."""
        if not self._is_first:
            return
        self._stand_back()
        if _has_ended(0.0):
            raise Abandoned
        _say(state="building", num_entries=num_read - self._num_told, fraction=fraction)
        self._num_told = num_read

    def up_to_date(self, num_entries: int, is_live: bool) -> None:
        _say(state="following" if is_live else "ready", num_entries=num_entries - self._num_told, fraction=1.0)
        self._num_told, self._is_first = 0, False
        self._stand_back()

    def _stand_back(self) -> None:
        if not self._stands_back:
            os.nice(NICENESS)
            self._stands_back = True


class Abandoned(Exception):
    """What is read so far stands in the index: the next one goes on from there."""


def _used_s() -> float:
    """Of a core, by this process."""
    times = os.times()
    return times.user + times.system


def _has_ended(wait_s: float) -> bool:
    """Wait so long, or until whoever started this is gone."""
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(ready)


def _say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
