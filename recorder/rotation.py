"""When a segment ends: at its size or age, and if it can be before a keyframe, so that the next one begins with it.

It must not know files.
"""

from collections.abc import Sequence
from typing import Protocol

from recorder.format import FRAME_PREFIX
from recorder.keyframe_demand import KeyframeDemand

_EARLY = 20  # a 20th of its bytes before a segment's end a keyframe is asked for, and waited for a 20th of its age


class Frame(Protocol):
    """As much of a frame as matters here."""

    @property
    def body(self) -> bytes: ...

    @property
    def is_keyframe(self) -> bool: ...


class Rotation:
    """Follows one segment after the other; `begin` each."""

    def __init__(self, demand: KeyframeDemand, max_segment_bytes: int, max_age_ns: int) -> None:
        self._demand = demand
        self._max_segment_bytes = max_segment_bytes
        self._max_age_ns = max_age_ns
        self._begun_ns = 0
        self._is_ending = False  # a keyframe was asked for, to begin the next segment with
        self._old_since_ns: int | None = None

    def begin(self, now_ns: int, *, with_keyframe: bool) -> None:
        """A segment begins; without a keyframe one is wanted soon, unless the core is new."""
        self._begun_ns = now_ns
        self._is_ending = False
        self._old_since_ns = None
        if not with_keyframe:
            self._demand.ask()

    def has_grown(self, num_bytes: int) -> None:
        """The segment has so many bytes now; nearly full, it ends at the next keyframe."""
        if num_bytes >= self._max_segment_bytes - self._max_segment_bytes // _EARLY:
            self._ask()

    def is_due(self, now_ns: int) -> bool:
        """It is so old that it ends now: a keyframe was asked for, and has not come."""
        if now_ns - self._begun_ns < self._max_age_ns:
            return False
        if self._old_since_ns is None:
            self._old_since_ns = now_ns
            self._ask()
        return not self._demand.is_answered or now_ns - self._old_since_ns >= self._max_age_ns // _EARLY

    def _ask(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._demand.ask()

    def num_fitting(self, num_bytes: int, frames: Sequence[Frame], *, is_empty: bool) -> int:
        """How many of the frames the segment of so many bytes takes; at least one when it is empty."""
        for index, frame in enumerate(frames):
            num_bytes += FRAME_PREFIX.size + len(frame.body)
            begins_next = frame.is_keyframe and self._is_ending
            if (begins_next or num_bytes > self._max_segment_bytes) and (index or not is_empty):
                return index
        return len(frames)
