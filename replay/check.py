"""`reprise check`: the core decides again on every recorded event; all decisions must be equal.

It needs neither model nor contents nor key, so it runs anywhere. Each life of the engine (a fresh core after a start
or a crash) is checked from its beginning, or from a keyframe. At each keyframe on the way the core's whole state must
be equal too: a state that has drifted is found before a decision differs.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.core.vocabulary import CoreKeyframe
from replay.divergence import (
    MAX_DIFFERENCES,
    NUM_ENTRIES_BEFORE,
    Classification,
    Divergence,
    Place,
    Raised,
    differences,
)
from replay.environment import Differences, compare_here
from replay.lives import Life, Run
from replay.player import CoreState, MakeCore, Mismatch, Player, Turn, first_mismatch
from replay.progress import Progress
from replay.refusal import CannotCompare
from replay.span import Span, beginning_of
from replay.transcript import Trail, describe, name_of
from replay.verdict import Verdict


@dataclass
class _Counts:
    entries: int = 0
    decisions: int = 0
    steps: int = 0
    keyframes: int = 0


def check(path: Path, make_core: MakeCore | None = None, span: Span = Span()) -> Verdict:  # noqa: B008  # immutable
    """Compare every decision in the recording with what the core decides now.

    span        what of the recording; all of it by default
    make_core   builds the core of each life in place of the one that recorded; tests hand in one that errs
    Raises RecordingError when the recording cannot be opened.
    """
    run = Run.open(path)
    counts, refusals, notes = _Counts(), list[CannotCompare](), list[str]()
    with Progress("check", "entries") as progress:
        for number, life in enumerate(span.lives_of(run.lives)):
            try:
                step = span.first.step if span.first is not None and number == 0 else None
                player = Player(life, make_core, beginning_of(life, step), span.last)
            except CannotCompare as refusal:
                refusals.append(refusal)
                continue
            notes += [player.beginning.note] if player.beginning.note else []
            divergence = _first_divergence(path, life, _noting(player.turns(), notes), counts, progress)
            counts.keyframes += player.num_keyframes
            notes += player.notes
            if divergence is not None:
                figures = _figures(counts, progress)
                return Verdict("check", str(path), figures, (divergence,), notes=(*notes, *run.notes()))
            refusals += player.refusals
        return Verdict(
            "check",
            str(path),
            _figures(counts, progress),
            notes=(*notes, *[refusal.reason for refusal in refusals[1:]], *run.notes()),
            refusal=refusals[0] if refusals else None,
        )


def _noting(turns: Iterator[Turn], notes: list[str]) -> Iterator[Turn]:
    for turn in turns:
        if turn.raised is not None and turn.ends_alike:
            notes.append(f"the core raised on the last event, as it did when recorded: {turn.raised.error}")
        yield turn


def _figures(counts: _Counts, progress: Progress) -> dict[str, float]:
    return {
        "entries": counts.entries,
        "decisions": counts.decisions,
        "steps": counts.steps,
        "keyframes": counts.keyframes,
        "seconds": progress.elapsed_ns / 1e9,
    }


def _first_divergence(
    path: Path, life: Life, turns: Iterator[Turn], counts: _Counts, progress: Progress
) -> Divergence | None:
    trail = Trail(life.opened_ns, NUM_ENTRIES_BEFORE)
    for turn in turns:
        mismatch = first_mismatch(turn)
        if mismatch is not None:
            return _report(path, life, turn, mismatch, trail)
        trail.pass_by(turn.entry)
        counts.entries += 1
        counts.decisions += len(turn.decided)
        counts.steps += hasattr(turn.entry.event, "execute_ns")
        progress.at(counts.entries)
    return None


def _report(path: Path, life: Life, turn: Turn, mismatch: Mismatch, trail: Trail) -> Divergence:
    entry = turn.entry
    is_drift = isinstance(entry.event, CoreKeyframe)
    record = mismatch.expected if mismatch.expected is not None else mismatch.got
    differing = differences(mismatch.expected, mismatch.got)
    environment = compare_here(life.header)
    return Divergence(
        place=Place(
            sequence=entry.sequence,
            time_ns=entry.now_ns - life.opened_ns,
            step=getattr(record, "step", getattr(entry.event, "step", -1)),
            record_index=mismatch.record_index,
            num_records=len(entry.decisions),
            request=getattr(record, "request", -1),
        ),
        classification=Classification.STRUCTURAL,
        expected=mismatch.expected,
        got=mismatch.got,
        differences=tuple(differing[:MAX_DIFFERENCES]),
        num_more_differences=max(0, len(differing) - MAX_DIFFERENCES),
        decided_on="the state at a keyframe" if is_drift else f"{name_of(entry.event)} {describe(entry.event)}",
        before=trail.lines(),
        circumstances=tuple([f"{field}: recorded {then!r}, now {now!r}" for field, then, now in turn.drift]),
        environment=environment.lines,
        likely_cause=_likely_cause(mismatch, environment),
        next_command=f"reprise show {shlex.quote(str(path))} --transcript --around {entry.sequence}",
    )


def _likely_cause(mismatch: Mismatch, environment: Differences) -> str:
    if isinstance(mismatch.got, Raised):
        return (
            "the core cannot have met this event in the state it is in: an entry before it was changed or is missing, "
            "or a rule of the core changed since"
        )
    if isinstance(mismatch.expected, CoreState):
        return (
            "the core's state drifted apart although every decision until then was equal: one will differ sooner or "
            "later. The state depends on what is no event, the keyframe was changed, or a rule of the core changed"
        )
    if environment.versions_differ:
        return "a rule of the core changed between the two versions"
    return (
        "the same version decides otherwise on the same events: the recording was changed, or a decision depends on "
        "what is no event (set or hash order: try PYTHONHASHSEED=0 and =1; a clock; global state)"
    )
