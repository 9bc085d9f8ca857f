"""One pass over a record directory, in a process of its own: seal what is closed, then keep the bounds.

`python -m recorder.housekeeping JSON` with what `Order` says; prints what `Outcome` says, as JSON. It runs at the
lowest priority, so that a serving engine beside it loses neither its interpreter nor a core to it.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from engine.clock import Clock, SystemClock
from recorder.errors import RecordingError
from recorder.format import PART_SUFFIX
from recorder.retention import Bounds, StoredSegment, choose, claimed, remove, scan, unpin


@dataclass(frozen=True, slots=True)
class Order:
    """
    directory   that holds the runs
    own_run     name of the run that the caller records into; its segments below `own_number` are closed
    """

    directory: str
    own_run: str
    own_number: int
    bounds: Bounds


@dataclass(slots=True)
class Outcome:
    """num_bytes, num_pinned_bytes: on the disk after the pass; faults: what could not be done, in words."""

    num_sealed: int = 0
    num_removed: int = 0
    num_unpinned: int = 0
    num_bytes: int = 0
    num_pinned_bytes: int = 0
    faults: list[str] = field(default_factory=list)


def keep_house(order: Order, clock: Clock) -> Outcome:
    """Seals and removes; what one segment refuses does not keep it from the others."""
    outcome = Outcome()
    directory = Path(order.directory)
    for segment in scan(directory):
        if not segment.is_sealed:
            _seal(segment, order, outcome)
    segments = scan(directory)
    free = os.statvfs(directory)
    choice = choose(segments, order.bounds, clock.wall_ns(), free.f_bavail * free.f_frsize)
    for segment in choice.unpinned:
        outcome.num_unpinned += 1
        segment.is_pinned = False
        unpin(segment)
    gone = {id(segment) for segment in choice.removed if _remove(segment, outcome)}
    outcome.num_removed = len(gone)
    for segment in segments:
        if id(segment) not in gone:
            outcome.num_bytes += segment.num_bytes
            outcome.num_pinned_bytes += segment.num_bytes * segment.is_pinned
    return outcome


def closed_segments(run: Path, number: int) -> Iterator[Path]:
    """Live segments of the run below the number, which is the one under way."""
    for path in sorted(run.glob("*.rpr")):
        if path.stem.isdecimal() and int(path.stem) < number:
            yield path


def _seal(segment: StoredSegment, order: Order, outcome: Outcome) -> None:
    is_own = segment.run.name == order.own_run
    if is_own and int(segment.number) >= order.own_number:
        return
    if not is_own and segment.is_in_use:
        return
    from recorder.sealing import seal  # here, for whoever only gives orders needs no zstd

    try:
        if is_own:
            seal(segment.path)
        else:
            with claimed(segment.run) as is_ours:
                if not is_ours:
                    return
                seal(segment.path)
        outcome.num_sealed += 1
    except (RecordingError, OSError) as error:
        segment.path.with_suffix(PART_SUFFIX).unlink(missing_ok=True)
        outcome.faults.append(f"{segment.path} is not sealed: {error}")


def _remove(segment: StoredSegment, outcome: Outcome) -> bool:
    try:
        remove(segment)
    except OSError as error:
        outcome.faults.append(f"{segment.path} cannot be removed: {error.strerror or error}")
        return False
    return True


def main() -> int:
    """Entry of `python -m recorder.housekeeping`."""
    os.nice(19)
    values = json.loads(sys.argv[1])
    outcome = keep_house(Order(**{**values, "bounds": Bounds(*values["bounds"])}), SystemClock())
    print(json.dumps(asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
