"""Two recordings of the same arrivals: the first event or decision that differs, then the layer where it can be had.

Each is read once into a running digest over what replay depends on: times, names, tenants and keyed digests are left
out, since two runs never share them. Halving finds the first entry that differs. Where both hold their contents and the
difference lies in what a step computed, both are executed here up to it and laid side by side.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.core.events import StepCompleted
from engine.core.vocabulary import Entry
from recorder.errors import RecordingError
from replay.bisect.builds import Parting, where_they_part
from replay.bisect.halving import first_unequal
from replay.divergence import (
    MAX_DIFFERENCES,
    NUM_ENTRIES_BEFORE,
    Classification,
    Divergence,
    FieldDifference,
    Place,
    differences,
)
from replay.environment import differing_lines
from replay.lives import Life, Run
from replay.model_runs.open_model import OpenRunner, Overrides
from replay.model_runs.step_trace import StepTracer
from replay.progress import Progress
from replay.proof import Proof
from replay.refusal import CannotCompare
from replay.transcript import Trail, describe, name_of
from replay.verdict import Verdict

_OF_ONE_RUN = (
    "request_id",
    "tenant",
    "prompt_digests",
    "grammar_digest",
    "filled",
    "kv_digests",
    "retry_after_ms",
    "expected_ms",
)


class _Position(NamedTuple):
    life: int
    entry: Entry


class _Read:
    """One recording: where each of its entries stands, and the running digest behind it."""

    def __init__(self, path: Path, progress: Progress, refusals: list[CannotCompare]) -> None:
        self.path = path
        self.run = Run.open(path)
        self.digests: list[bytes] = []
        running = b""
        for entry in self.entries(refusals):
            running = hashlib.blake2b(running + _canonical(entry.entry).encode(), digest_size=16).digest()
            self.digests.append(running)
            progress.at(len(self.digests))

    def entries(self, refusals: list[CannotCompare]) -> Iterator[_Position]:
        for number, life in enumerate(self.run.lives):
            if life.refusal is not None:
                refusals.append(life.refusal)
                return
            for entry in life.comparable_entries(refusals.append):
                yield _Position(number, entry)

    def at(self, index: int) -> tuple[_Position | None, tuple[str, ...]]:
        """The entry of this number, and the lines of those before it."""
        life: Life | None = None
        trail = Trail(0, NUM_ENTRIES_BEFORE)
        for number, position in enumerate(self.entries([])):
            if self.run.lives[position.life] is not life:
                life = self.run.lives[position.life]
                trail = Trail(life.opened_ns, NUM_ENTRIES_BEFORE)
            if number == index:
                return position, trail.lines()
            trail.pass_by(position.entry)
        return None, trail.lines()


def bisect_recordings(
    left: Path,
    right: Path,
    *,
    overrides: Overrides,
    open_runner: OpenRunner,
) -> Verdict:
    """The first entry in which two recordings differ. Raises RecordingError when one cannot be opened."""
    refusals: list[CannotCompare] = []
    with Progress("bisect", "entries") as progress:
        reads = [_Read(path, progress, refusals) for path in (left, right)]
        index = first_unequal(reads[0].digests, reads[1].digests)
        figures = {"entries": min(len(read.digests) for read in reads), "seconds": progress.elapsed_ns / 1e9}
    if index is None:
        return Verdict("bisect", f"{left} {right}", figures, refusal=refusals[0] if refusals else None)
    divergence, notes = _report(reads[0], reads[1], index, overrides, open_runner)
    return Verdict("bisect", f"{left} {right}", {**figures, "equal_entries": index}, (divergence,), notes)


def _report(
    left: _Read, right: _Read, index: int, overrides: Overrides, open_runner: OpenRunner
) -> tuple[Divergence, tuple[str, ...]]:
    (here, before), (there, _) = left.at(index), right.at(index)
    place_at = here or there
    assert place_at is not None, "one of them is longer, so it has this entry"
    read = left if here is not None else right
    entry, life = place_at.entry, read.run.lives[place_at.life]
    record_index, expected, got = _first_records(here and here.entry, there and there.entry)
    record = expected if expected is not None else got
    differing = _differences(expected, got)
    proof, notes = _beneath(left, right, expected, got, overrides, open_runner)
    headers = [of.run.lives[min(place_at.life, len(of.run.lives) - 1)].header for of in (left, right)]
    return (
        Divergence(
            place=Place(
                sequence=entry.sequence,
                time_ns=entry.now_ns - life.opened_ns,
                step=getattr(record, "step", getattr(entry.event, "step", -1)),
                record_index=record_index,
                num_records=len(entry.decisions),
                request=getattr(record, "request", -1),
            ),
            classification=Classification.NUMERIC if isinstance(record, StepCompleted) else Classification.STRUCTURAL,
            expected=expected,
            got=got,
            differences=tuple(differing[:MAX_DIFFERENCES]),
            num_more_differences=max(0, len(differing) - MAX_DIFFERENCES),
            decided_on=f"{name_of(entry.event)} {describe(entry.event)}",
            before=before,
            circumstances=(f"recorded is {left.path}, got is {right.path}",),
            environment=differing_lines(headers[0].environment, headers[1].environment),
            likely_cause=_likely_cause(record_index, record),
            next_command=f"reprise diff {left.path} {right.path}",
            proof=proof,
        ),
        notes,
    )


def _first_records(left: Entry | None, right: Entry | None) -> tuple[int, Any, Any]:
    """Which of the entry's records differs first (-1: its event), on both sides."""
    if left is None or right is None:
        return -1, left and left.event, right and right.event
    sides = [(entry.event, *entry.decisions) for entry in (left, right)]
    for index in range(max(len(side) for side in sides)):
        expected, got = (side[index] if index < len(side) else None for side in sides)
        if _canonical_record(expected) != _canonical_record(got):
            return index - 1, expected, got
    return -1, left.event, right.event  # only the order of what is left out differs


def _differences(expected: Any, got: Any) -> list[FieldDifference]:
    if expected is not None and type(expected) is type(got):
        got = got._replace(**{name: getattr(expected, name) for name in expected._fields if _is_of_one_run(name)})
    return differences(expected, got)


def _beneath(
    left: _Read, right: _Read, expected: Any, got: Any, overrides: Overrides, open_runner: OpenRunner
) -> tuple[Proof | None, tuple[str, ...]]:
    """Both carried out here: where their rows part, if they do."""
    if not (isinstance(expected, StepCompleted) and isinstance(got, StepCompleted)):
        return None, ()
    try:
        parting, num_steps = _parting(left, right, overrides, open_runner)
    except (CannotCompare, RecordingError) as error:
        return None, (f"what lies beneath cannot be had: {error}",)
    if parting is None:
        remark = (
            f"carried out here, the first {num_steps} steps of both give equal bits: the builds or machines differed"
        )
        return Proof(None, None, remark), ()
    return Proof(parting.place, None, "carried out here, both recordings' steps part there: their contents differ"), ()


def _parting(left: _Read, right: _Read, overrides: Overrides, open_runner: OpenRunner) -> tuple[Parting | None, int]:
    sides = [StepTracer(read.path, overrides, open_runner) for read in (left, right)]
    with Progress("bisect", "steps") as progress:
        return where_they_part(sides[0], sides[1], progress.at)


def _likely_cause(record_index: int, record: Any) -> str:
    if isinstance(record, StepCompleted):
        return "the same plan gave other results: another build, machine or numerics class, other contents or seeds"
    if record_index < 0:
        return "not the same events in the same order: arrivals, cancels or results came otherwise"
    return "the same events were decided otherwise: another version, policy or limits"


def _canonical(entry: Entry) -> str:
    return "\n".join(_canonical_record(record) for record in (entry.event, *entry.decisions))


def _canonical_record(record: Any) -> str:
    if record is None:
        return ""
    fields = [(name, value) for name, value in record._asdict().items() if not _is_of_one_run(name)]
    return f"{type(record).__name__} {fields}"


def _is_of_one_run(name: str) -> bool:
    return name.endswith("_ns") or name in _OF_ONE_RUN
