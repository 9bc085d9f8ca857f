"""Where in live segments some frames lie, remembered in this process: whoever seeks again need not read from the start.

A live segment only grows, so a place once seen stays; one that is no more the same file is not known. It must not know
what a frame holds.
"""

import os
from bisect import bisect_left
from typing import NamedTuple

from recorder.frames import FrameReader

FRAMES_APART = 2_048
MAX_FILES = 64


class FramePlace(NamedTuple):
    """All frames before it bear this sequence or a lower one. Field names as of `FrameReader`, standing there."""

    sequence: int
    offset: int
    checksum: int


class FramePlaces:
    """Told of frames as they are passed by."""

    def __init__(self) -> None:
        self._of_file: dict[tuple[int, int, int], list[FramePlace]] = {}

    def go_near(self, frames: FrameReader, sequence: int) -> None:
        """Set the reader to the last known place before all frames that bear this sequence or a higher one."""
        places = self._of_file.get(_key(frames), [])
        number = bisect_left(places, (sequence,))
        if number and places[number - 1].sequence < sequence:  # threads may have noted them out of order
            frames.go_to(places[number - 1].offset, places[number - 1].checksum)

    def note(self, frames: FrameReader, place: FramePlace) -> None:
        """A place at which another frame was read."""
        key = _key(frames)
        if key not in self._of_file and len(self._of_file) >= MAX_FILES:
            del self._of_file[next(iter(self._of_file))]
        places = self._of_file.setdefault(key, [])
        if not places or places[-1].offset < place.offset:
            places.append(place)


def _key(frames: FrameReader) -> tuple[int, int, int]:
    """Which file it is: an inode may be given to another one, whose header is another."""
    status = os.fstat(frames.file.fileno())
    return status.st_dev, status.st_ino, frames.header_checksum
