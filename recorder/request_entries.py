"""The entries about one request: of a sealed segment only the chunks that its index names, of a live one all.

A reader in a hurry: what is damaged or missing is passed by in silence. `Recording.entries` tells of it.
"""

from collections.abc import Iterator

import msgpack

from engine.core.events import RequestArrived, StepCompleted, StepFailed
from engine.core.vocabulary import CoreKeyframe, Entry, entry_from_array
from recorder.reader import Recording, Segment
from recorder.segment_files import open_segment


def entries_about(section: Recording, request: int) -> Iterator[Entry]:
    """All that concern the request, among others, in order. `section`: one of a recording's `sections`."""
    for segment in section.segments:
        yield from _in_segment(segment, request)


def arrivals_named(section: Recording, request_id: str) -> Iterator[RequestArrived]:
    """Arrivals under this name, in order. Of all other entries the bodies are looked through, and not decoded."""
    name = request_id.encode()
    for segment in section.segments:
        frames = open_segment(segment.path)
        try:
            for body in frames.bodies():
                event = _entry(body).event if name in body else None
                if isinstance(event, RequestArrived) and event.request_id == request_id:
                    yield event
        except _NoEntry:
            continue
        finally:
            frames.close()


def _in_segment(segment: Segment, request: int) -> Iterator[Entry]:
    frames = open_segment(segment.path)
    first_chunk, end = 0, None
    if frames.index is not None:
        chunks = frames.index.of_request(request)
        if not chunks:
            frames.close()
            return
        first_chunk = chunks.start
        following = frames.index.chunks[chunks.stop : chunks.stop + 1]
        end = following[0].first_sequence if following else None
    try:
        for body in frames.bodies(first_chunk):
            entry = _entry(body)
            if type(entry.event) is CoreKeyframe:
                continue
            yield entry
            if end is not None and entry.sequence >= end and isinstance(entry.event, StepCompleted | StepFailed):
                return  # of the step that was under way when it was last spoken of, too
    except _NoEntry:
        return
    finally:
        frames.close()


class _NoEntry(Exception):
    """The body holds none."""


def _entry(body: bytes) -> Entry:
    try:
        return entry_from_array(msgpack.unpackb(body, use_list=False, strict_map_key=False))
    except Exception as error:  # a stranger's bytes may be wrong in any way
        raise _NoEntry from error
