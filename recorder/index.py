"""Where in a sealed segment something is: sequence, step, time or request → chunk. Disposable: readers do without.

It knows entries as arrays, by the positions of their fields; it never changes what a reader reads.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.core.vocabulary import KIND_OF, KINDS, CoreKeyframe

NO_STEP = -1


class ChunkInfo(NamedTuple):
    """One chunk of entries; first_step is the first step it tells of, NO_STEP when it tells of none."""

    offset: int
    num_entries: int
    first_sequence: int
    first_now_ns: int
    last_now_ns: int
    first_step: int
    last_step: int


class Keyframe(NamedTuple):
    """A whole state of the core, before the entry of that sequence.

    step    the first that was not planned yet
    chunk   that it lies in, as its first frame
    """

    sequence: int
    step: int
    now_ns: int
    chunk: int


@dataclass(slots=True)
class Index:
    """
    chunks      in order
    requests    request → the first and the last chunk that tells of it
    keyframes   in order; empty from writers that kept none
    """

    chunks: list[ChunkInfo] = field(default_factory=list)
    requests: dict[int, tuple[int, int]] = field(default_factory=dict)
    keyframes: list[Keyframe] = field(default_factory=list)

    def of_sequence(self, sequence: int) -> int:
        """The chunk that holds the entry, or would."""
        return max(0, bisect_right([chunk.first_sequence for chunk in self.chunks], sequence) - 1)

    def of_keyframe(self, sequence: int) -> int | None:
        """The chunk that holds the keyframe before this entry; None when there is none."""
        return next((keyframe.chunk for keyframe in self.keyframes if keyframe.sequence == sequence), None)

    def of_time(self, now_ns: int) -> int:
        """The chunk in which this moment lies."""
        return max(0, bisect_right([chunk.first_now_ns for chunk in self.chunks], now_ns) - 1)

    def of_step(self, step: int) -> int | None:
        """The chunk that first tells of the step; None when none does."""
        for number, chunk in enumerate(self.chunks):
            if chunk.first_step != NO_STEP and chunk.first_step <= step <= chunk.last_step:
                return number
        return None

    def of_request(self, request: int) -> range:
        """The chunks from its arrival to its last mention."""
        first, last = self.requests.get(request, (0, -1))
        return range(first, last + 1)

    def add(self, offset: int, entries: Iterable[tuple[Any, ...]]) -> None:
        """One more chunk; its entries as arrays."""
        number, arrays = len(self.chunks), list(entries)
        steps: list[int] = []
        for sequence, now_ns, event, decisions in arrays:
            if event[0] == _KEYFRAME:
                self.keyframes.append(Keyframe(sequence, event[1], now_ns, number))
            for record in (event, *decisions):
                for request in _requests_in(record):
                    self.requests[request] = (self.requests.get(request, (number, 0))[0], number)
                position = _STEP.get(record[0])
                if position is not None:
                    steps.append(record[position])
        first, last = arrays[0], arrays[-1]
        self.chunks.append(
            ChunkInfo(
                *(offset, len(arrays), first[0], first[1], last[1]),
                *((min(steps), max(steps)) if steps else (NO_STEP, NO_STEP)),
            )
        )

    def to_map(self) -> dict[str, Any]:
        return {
            "chunks": self.chunks,
            "requests": [(request, *span) for request, span in self.requests.items()],
            "keyframes": self.keyframes,
        }

    @classmethod
    def from_map(cls, values: dict[str, Any]) -> "Index":
        """Fields beyond those known are dropped. Raises whatever a stranger's values may raise."""
        return cls(
            [ChunkInfo(*row[: len(ChunkInfo._fields)]) for row in values["chunks"]],
            {row[0]: (row[1], row[2]) for row in values["requests"]},
            [Keyframe(*row[: len(Keyframe._fields)]) for row in values.get("keyframes", ())],
        )


def _positions(name: str) -> dict[int, int]:
    """Kind → position in its array of the field of this name."""
    return {
        kind: 1 + record_type._fields.index(name) for kind, record_type in KINDS.items() if name in record_type._fields
    }


_KEYFRAME = KIND_OF[CoreKeyframe]
_STEP = _positions("step")
_NAMED = [_positions(name) for name in ("request", "writer")]
_ROWS = [_positions(name) for name in ("rows", "emitted", "lost", "handed_over")]  # each row begins with a request


def _requests_in(record: tuple[Any, ...]) -> Iterable[int]:
    """Those that it is about; who else it names lives at that time, so that its chunks are known from its own records.

    An array from an older writer may be shorter than its kind is now.
    """
    kind, length = record[0], len(record)
    found = [record[position] for at in _NAMED if (position := at.get(kind, length)) < length]
    for at in _ROWS:
        if (position := at.get(kind, length)) < length:
            found += [row[0] for row in record[position]]
    return found
