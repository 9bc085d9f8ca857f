"""A recording made whole again, aside: all that can be read, its holes told as gaps, its segments chained anew.

The original is only read. Nothing is invented: a gap stands where entries are known to be missing, and nothing where
nobody can know (behind the last entry that could be read).
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgpack

from engine.core.vocabulary import CoreKeyframe, Entry, RecordingGap, entry_from_array, entry_to_array
from recorder.errors import RecordingError
from recorder.format import SEALED_SUFFIX, SEGMENT_MAGIC, VAULT_MAGIC, VAULT_SUFFIX, segment_path
from recorder.frames import FramedFile, FrameReader
from recorder.reader import Recording, Segment
from recorder.sealing import seal
from recorder.segment_files import open_segment

CAUSE = "lost to damage, found by reprise repair"
_BATCH_FRAMES = 512


@dataclass(slots=True)
class Repaired:
    """What the copy holds: entries, gaps that were put in, and records of contents."""

    num_entries: int = 0
    num_gaps: int = 0
    num_content_records: int = 0
    notices: list[str] = field(default_factory=list)


def repair(source: Path, target: Path) -> Repaired:
    """Copy what can be read of a run into a new folder. Raises RecordingError; the folder is then not complete."""
    if target.exists():
        raise RecordingError(f"{target} exists: a repaired copy goes into a folder of its own")
    recording = Recording.open(source)
    target.mkdir(mode=0o700, parents=True)
    copy = _Copy(target)
    for segment in recording.segments:
        copy.add(segment)
    for _entry in recording.entries():
        pass
    copy.done.notices = [str(notice) for notice in recording.notices]
    return copy.done


class _Copy:
    def __init__(self, target: Path) -> None:
        self._target = target
        self._digest = b""
        self._expected = 0
        self._last_now_ns = 0
        self.done = Repaired()

    def add(self, segment: Segment) -> None:
        header = segment.header
        if header.starts_fresh:
            self._expected = header.first_sequence
        path = segment_path(self._target, header.segment_number)
        file = FramedFile(
            path, SEGMENT_MAGIC, replace(header, previous_segment_digest=self._digest, origin="repaired").to_map()
        )
        try:
            _append(file, self._bodies(segment.path))
            file.sync()
            self._digest = file.digest()
        finally:
            file.close()
        if segment.path.suffix == SEALED_SUFFIX:
            seal(path)
        vault = segment.path.with_suffix(VAULT_SUFFIX)
        if vault.exists():
            self._copy_vault(vault)

    def _bodies(self, path: Path) -> Iterator[bytes]:
        with closing(open_segment(path)) as frames:
            for body in frames:
                try:
                    entry = entry_from_array(msgpack.unpackb(body, use_list=False, strict_map_key=False))
                except Exception:  # a stranger's bytes may be wrong in any way; the notices say so
                    return
                yield from self._gap_before(entry)
                self._see(entry)
                self.done.num_entries += 1
                yield body

    def _gap_before(self, entry: Entry) -> Iterator[bytes]:
        num_missing = entry.sequence - self._expected
        if num_missing > 0:
            gap = RecordingGap(self._expected, num_missing, CAUSE)
            self.done.num_gaps += 1
            yield msgpack.packb(entry_to_array(Entry(self._expected, self._last_now_ns or entry.now_ns, gap, ())))

    def _see(self, entry: Entry) -> None:
        self._expected = entry.sequence + _num_sequences(entry)
        self._last_now_ns = entry.now_ns

    def _copy_vault(self, vault: Path) -> None:
        with closing(FrameReader(vault, VAULT_MAGIC)) as frames:
            file = FramedFile(self._target / vault.name, VAULT_MAGIC, frames.header)
            try:
                self.done.num_content_records += _append(file, iter(frames))
                file.sync()
            finally:
                file.close()


def _num_sequences(entry: Entry) -> int:
    """How many it stands for; a keyframe bears the sequence of the entry behind it."""
    match entry.event:
        case RecordingGap():
            return entry.event.num_entries
        case CoreKeyframe():
            return 0
        case _:
            return 1


def _append(file: FramedFile, bodies: Iterator[bytes]) -> int:
    """Returns how many."""
    num_bodies = 0
    batch: list[bytes] = []
    for body in bodies:
        batch.append(body)
        num_bodies += 1
        if len(batch) == _BATCH_FRAMES:
            file.append(batch)
            batch = []
    if batch:
        file.append(batch)
    return num_bodies
