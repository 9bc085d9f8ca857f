"""How much of a recording lies before one of its entries: for whoever waits for the rest to be read.

Where a segment is followed by another, its entries are counted by their sequences; a sealed one says its number itself;
of a live one at the end it is estimated from the size of its first frames. It reads no more than that.
"""

from typing import NamedTuple

from recorder.errors import RecordingError
from recorder.frames import FrameReader
from recorder.reader import Recording, Segment
from recorder.segment_files import open_segment
from replay.lives import Run

_SAMPLE_BYTES = 256 * 1024


class _Stretch(NamedTuple):
    """One segment: its life, its first sequence, how many entries it has and how many come before it."""

    life: int
    first_sequence: int
    num_entries: int
    num_before: int


class Extent:
    """num_entries: in all; an estimate while the last segment is live"""

    def __init__(self, run: Run) -> None:
        self._stretches: list[_Stretch] = []
        self.num_entries = 0
        for number, section in enumerate(run.recording.sections, 1):
            self._add(number, section)

    def fraction(self, life: int, sequence: int) -> float:
        """0 … 1: what of the whole lies before that entry and with it."""
        passed = 0
        for stretch in self._stretches:
            if (stretch.life, stretch.first_sequence) > (life, sequence):
                break
            inside = stretch.num_entries if stretch.life < life else sequence - stretch.first_sequence + 1
            passed = stretch.num_before + min(stretch.num_entries, max(0, inside))
        return min(1.0, passed / max(1, self.num_entries))

    def _add(self, life: int, section: Recording) -> None:
        firsts = [segment.header.first_sequence for segment in section.segments]
        for place, segment in enumerate(section.segments):
            is_last = place == len(firsts) - 1
            num = _num_entries(segment) if is_last else firsts[place + 1] - firsts[place]
            self._stretches.append(_Stretch(life, firsts[place], num, self.num_entries))
            self.num_entries += num


def _num_entries(segment: Segment) -> int:
    try:
        frames = open_segment(segment.path)
    except (RecordingError, OSError):  # gone, or damaged: nothing of it will be read
        return 0
    try:
        if not isinstance(frames, FrameReader):
            return frames.footer.num_entries if frames.footer is not None else 0
        first_offset, num = frames.offset, 0
        for _ in frames.bodies():
            num += 1
            if frames.offset - first_offset >= _SAMPLE_BYTES:
                break
        num_bytes = max(1, frames.offset - first_offset)
        return round(num * max(1.0, (segment.num_bytes - first_offset) / num_bytes))
    finally:
        frames.close()
