"""Keyframes of a redacted copy: the core decides again on what was redacted, and is frozen where the original was.

So no state of the original is read, and `--from` begins in the copy where it begins in the original. It knows no
contents.
"""

from typing import Any

from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.freezing import keyframe_of
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from recorder.header import Header
from replay.older_writer import as_written
from replay.own_policy import recorded_core
from replay.refusal import CannotCompare


class RedactedStates:
    """`see` every redacted entry of a life; `keyframe` between two of them.

    why_none   why there are no more keyframes: the core cannot be had here, or decides otherwise than was recorded
    """

    def __init__(self, header: Header) -> None:
        """`header`: the copy's."""
        self.why_none = ""
        self._core: Core | None = None
        self._as_written = as_written(header.schema)
        try:
            self._core = recorded_core(header)
        except CannotCompare as refusal:
            self.why_none = str(refusal)

    def see(self, entry: Entry) -> None:
        if self._core is None:
            return
        try:
            event: Any = entry.event  # what is no event breaks the core, as it broke the one that recorded
            decided = self._as_written(tuple(self._core.handle(event, entry.now_ns)))
        except Exception as error:  # whatever it is: the last event of a core that broke, or a changed recording
            self._give_up(entry, f"{type(error).__name__}: {error}")
            return
        if decided != entry.decisions:
            self._give_up(entry, "the core decides otherwise now")

    def keyframe(self, place: Entry) -> Entry | None:
        """The state where the original has its keyframe `place`."""
        if self._core is None:
            return None
        try:
            return place._replace(event=keyframe_of(self._core))
        except KeyframeError as error:
            self._give_up(place, str(error))
            return None

    def _give_up(self, entry: Entry, reason: str) -> None:
        self._core, self.why_none = None, f"no keyframes from sequence {entry.sequence} on: {reason}"
