"""What a recording is: whose, from when to when, how whole, under which limits, and where it can be replayed.

It reads headers and the notices of a pass over the entries; the figures of the traffic are `figures.py`'s.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from engine.core.vocabulary import RecordingClosed
from recorder.format import VAULT_SUFFIX
from recorder.incidents import pins_of
from recorder.keyframes import first_in
from replay.environment import NUMERICS_CLASS, compare_here
from replay.lives import Run
from replay.refusal import CannotCompare


@dataclass(frozen=True, slots=True)
class Provenance:
    """A recording at large.

    began, ended      wall-clock times in UTC of its opening and its last entry
    num_lives         engine processes; more than one means that an engine was restarted in the run
    is_whole          nothing is known to be missing
    closed            cause given when it was shut in order; "" when it was not
    notices           what is damaged or missing, in words
    has_contents      a vault stands beside it
    origin            "" for what an engine recorded, else what made this copy of it
    pins              why it is kept beyond the bounds
    differences_here  what differs between the recording's environment and this one
    """

    run: str
    began: str
    ended: str
    span_seconds: float
    num_segments: int
    num_lives: int
    num_bytes: int
    num_entries: int
    is_whole: bool
    closed: str
    notices: tuple[str, ...]
    reprise_version: str
    numerics_class: str
    model: str
    limits: dict[str, Any]
    config: dict[str, Any]
    environment: dict[str, Any]
    has_contents: bool
    can_check: str
    can_execute: str
    differences_here: tuple[str, ...]
    origin: str
    pins: tuple[str, ...]

    def as_values(self) -> dict[str, Any]:
        return asdict(self)


def provenance(run: Run) -> Provenance:
    """Reads every entry once, for its times and to know what is missing."""
    header = run.recording.header
    num_entries, first_ns, last_ns, closed = 0, 0, 0, ""
    ended_wall_ns = header.created_wall_ns
    for life in run.lives:
        closed = ""
        for entry in life.entries():
            if isinstance(entry.event, RecordingClosed):
                closed = entry.event.cause
                continue
            num_entries += 1
            first_ns = first_ns or entry.now_ns
            last_ns = entry.now_ns
            ended_wall_ns = life.header.created_wall_ns + entry.now_ns - life.opened_ns
    path = run.recording.path
    has_contents = any(segment.path.with_suffix(VAULT_SUFFIX).exists() for segment in run.recording.segments)
    numerics_class = str(header.environment.get(NUMERICS_CLASS, ""))
    return Provenance(
        run=path.resolve().name,
        began=_utc(header.created_wall_ns),
        ended=_utc(ended_wall_ns),
        span_seconds=max(0, last_ns - first_ns) / 1e9,
        num_segments=len(run.recording.segments),
        num_lives=len(run.lives),
        num_bytes=sum(segment.num_bytes for segment in run.recording.segments),
        num_entries=num_entries,
        is_whole=run.is_whole,
        closed=closed,
        notices=run.notes(),
        reprise_version=header.reprise_version,
        numerics_class=numerics_class,
        model=str(header.environment.get("model") or header.config.get("model", "")),
        limits=header.limits,
        config=header.config,
        environment=header.environment,
        has_contents=has_contents,
        can_check=_where_check(run),
        can_execute=_where_execute(run, numerics_class, has_contents),
        differences_here=compare_here(header).lines,
        origin=header.origin,
        pins=tuple(dict.fromkeys(pin.reason for segment in run.recording.segments for pin in pins_of(segment.path))),
    )


def _utc(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _where_check(run: Run) -> str:
    refusals = _refusals(run)
    if refusals:
        return f"not as given: {refusals[0].reason}"
    if any(life.refusal is not None for life in run.lives):
        return "anywhere, from its first keyframe on"
    return "anywhere" if run.is_whole else "anywhere, but for what is missing"


def _refusals(run: Run) -> list[CannotCompare]:
    """Of the lives that have neither their beginning nor a keyframe."""
    return [life.refusal for life in run.lives if life.refusal is not None and first_in(life.segments) is None]


def _where_execute(run: Run, numerics_class: str, has_contents: bool) -> str:
    if not has_contents:
        return "nowhere: recorded without contents (--record-content)"
    refusals = _refusals(run)
    if refusals:
        return f"not as given: {refusals[0].reason}"
    return f"bit for bit on numerics class {numerics_class or '(none recorded)'}; elsewhere tokens only"
