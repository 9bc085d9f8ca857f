"""Where the keyframes of a recording are: by a sealed segment's index, or by looking through a live one's frames.

It reads no more of a recording than it must: of a sealed segment its index, of a live one the frames' first bytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgpack

from engine.core.vocabulary import KIND_OF, CoreKeyframe
from recorder.index import Keyframe
from recorder.segment_files import open_segment

if TYPE_CHECKING:
    from recorder.reader import Segment

_KIND = KIND_OF[CoreKeyframe]
_MARK = msgpack.packb(_KIND)
_HEAD_BYTES = 24  # array, two ints and an array's head come before the event's kind: 20 bytes at most
_ARRAY_OF_4, _UINT32, _UINT32_END = 0x94, 0xCE, 6  # msgpack's marks, and where such an int ends in such an array
_NOT_LISTED = -1  # the chunk of a keyframe in a live segment


def last_at(segments: "Sequence[Segment]", step: int) -> Keyframe | None:
    """The last keyframe that was taken before this step was planned. Raises RecordingError."""
    for segment in reversed(segments):
        found = [keyframe for keyframe in _in_segment(segment) if keyframe.step <= step]
        if found:
            return found[-1]
    return None


def first_in(segments: "Sequence[Segment]") -> Keyframe | None:
    """The first keyframe of all. Raises RecordingError."""
    return next((keyframe for segment in segments for keyframe in _in_segment(segment)), None)


def is_keyframe(body: bytes) -> bool:
    """Whether a frame's body holds one; of most others the first bytes say that they do not."""
    if _MARK not in body[:_HEAD_BYTES]:
        return False
    return bool(_event_of(body)[0] == _KIND)


def sequence_of(body: bytes) -> int | None:
    """The sequence that a frame's body bears, without unpacking the rest; None when it is no entry's."""
    if (
        len(body) > _UINT32_END and body[0] == _ARRAY_OF_4 and body[1] == _UINT32
    ):  # by far the most, and an unpacker costs more than the frame
        return int.from_bytes(body[2:_UINT32_END], "big")
    unpacker = msgpack.Unpacker(max_buffer_size=64)
    unpacker.feed(body[:_HEAD_BYTES])
    try:
        unpacker.read_array_header()
        sequence = unpacker.unpack()
    except Exception:  # a stranger's bytes may be wrong in any way; whoever unpacks the whole will say so
        return None
    return sequence if isinstance(sequence, int) else None


def _event_of(body: bytes) -> Any:
    try:
        return msgpack.unpackb(body, use_list=False, strict_map_key=False)[2]
    except Exception:  # as above
        return (None,)


def _in_segment(segment: "Segment") -> Iterator[Keyframe]:
    with closing(open_segment(segment.path)) as frames:
        if frames.index is not None:
            yield from frames.index.keyframes
            return
        for body in frames:
            if is_keyframe(body):
                sequence, now_ns, event = msgpack.unpackb(body, use_list=False, strict_map_key=False)[:3]
                yield Keyframe(sequence, event[1], now_ns, _NOT_LISTED)
