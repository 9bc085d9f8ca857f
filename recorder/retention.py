"""What of a record directory may stay: bytes, age, free space, and the budget for pins → what goes, oldest first.

`scan` looks at the disk, `choose` decides on what was seen, `remove` does it. A segment goes with its vault. Segments
that are being recorded into are never touched.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from recorder.format import SEALED_SUFFIX, SEGMENT_SUFFIX, VAULT_SUFFIX
from recorder.incidents import PIN_SUFFIX, pins_of

_SUFFIXES = (SEGMENT_SUFFIX, SEALED_SUFFIX, VAULT_SUFFIX, PIN_SUFFIX)
_NS_PER_S = 1_000_000_000


class Bounds(NamedTuple):
    """
    max_bytes       of what is not pinned, vaults included
    max_age_s       since the last entry of a segment
    min_free_bytes  on the file system
    max_pin_bytes   of what is pinned; beyond it the oldest automatic pins are taken off first, then an operator's
    """

    max_bytes: int
    max_age_s: int
    min_free_bytes: int
    max_pin_bytes: int


@dataclass(slots=True)
class StoredSegment:
    """One segment and what lies beside it.

    suffixes     of its files
    written_ns   wall time of its last change, in either form
    """

    run: Path
    number: str
    suffixes: list[str] = field(default_factory=list)
    num_bytes: int = 0
    written_ns: int = 0
    is_pinned: bool = False
    is_pinned_automatically: bool = False
    is_in_use: bool = False

    @property
    def path(self) -> Path:
        return self.run / f"{self.number}{SEALED_SUFFIX if self.is_sealed else SEGMENT_SUFFIX}"

    @property
    def is_sealed(self) -> bool:
        return SEALED_SUFFIX in self.suffixes


class Choice(NamedTuple):
    """What is to go, each oldest first."""

    removed: list[StoredSegment]
    unpinned: list[StoredSegment]


def scan(directory: Path) -> list[StoredSegment]:
    """All segments of all runs in the directory, the oldest first."""
    segments: list[StoredSegment] = []
    with os.scandir(directory) as runs:
        for run in runs:
            if run.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # it goes away while we look
                    segments += _scan_run(Path(run.path))
    segments.sort(key=lambda segment: (segment.written_ns, segment.run, segment.number))
    return segments


def choose(segments: Iterable[StoredSegment], bounds: Bounds, now_wall_ns: int, num_free_bytes: int) -> Choice:
    """`segments` oldest first. A pin that is taken off exposes its segment to the other bounds at once."""
    ordered = list(segments)
    unpinned = _over_budget(ordered, bounds.max_pin_bytes)
    taken_off = {id(segment) for segment in unpinned}
    removable = [s for s in ordered if not s.is_in_use and (not s.is_pinned or id(s) in taken_off)]
    num_bytes = sum(s.num_bytes for s in ordered if not s.is_pinned or id(s) in taken_off)
    num_lacking = bounds.min_free_bytes - num_free_bytes
    removed = []
    for segment in removable:
        is_old = now_wall_ns - segment.written_ns > bounds.max_age_s * _NS_PER_S
        if is_old or num_bytes > bounds.max_bytes or num_lacking > 0:
            removed.append(segment)
            num_bytes -= segment.num_bytes
            num_lacking -= segment.num_bytes
    return Choice(removed, unpinned)


def remove(segment: StoredSegment) -> None:
    """The segment with all that lies beside it, and its run's folder when that was the last. Raises OSError."""
    for suffix in segment.suffixes:
        (segment.run / f"{segment.number}{suffix}").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # more is in it
        segment.run.rmdir()


def unpin(segment: StoredSegment) -> None:
    (segment.run / f"{segment.number}{PIN_SUFFIX}").unlink(missing_ok=True)


def is_recorded_into(run: Path) -> bool:
    """Another process holds the run's folder."""
    with claimed(run) as is_ours:
        return not is_ours


@contextlib.contextmanager
def claimed(run: Path) -> Iterator[bool]:
    """Whether the run could be had for ourselves: nobody records into it meanwhile."""
    descriptor = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _scan_run(run: Path) -> list[StoredSegment]:
    found: dict[str, StoredSegment] = {}
    with os.scandir(run) as entries:
        for entry in entries:
            stem, dot, suffix = entry.name.rpartition(".")
            if not stem.isdecimal() or dot + suffix not in _SUFFIXES:
                continue
            status = entry.stat(follow_symlinks=False)
            segment = found.setdefault(stem, StoredSegment(run, stem))
            segment.suffixes.append(dot + suffix)
            segment.num_bytes += status.st_blocks * 512
            if suffix != "pin":
                segment.written_ns = max(segment.written_ns, status.st_mtime_ns)
    for segment in found.values():
        if PIN_SUFFIX in segment.suffixes:
            segment.is_pinned = True
            segment.is_pinned_automatically = all(pin.is_automatic for pin in pins_of(segment.path))
    _mark_in_use(run, list(found.values()))
    return list(found.values())


def _mark_in_use(run: Path, segments: list[StoredSegment]) -> None:
    """Live ones whose run somebody records into, and the last one of such a run."""
    live = [segment for segment in segments if not segment.is_sealed]
    if live and is_recorded_into(run):
        for segment in live:
            segment.is_in_use = True


def _over_budget(segments: list[StoredSegment], max_pin_bytes: int) -> list[StoredSegment]:
    pinned = [segment for segment in segments if segment.is_pinned]
    num_bytes = sum(segment.num_bytes for segment in pinned)
    taken_off = []
    for segment in sorted(pinned, key=lambda segment: not segment.is_pinned_automatically):  # stable: oldest first
        if num_bytes <= max_pin_bytes:
            break
        taken_off.append(segment)
        num_bytes -= segment.num_bytes
    return taken_off
