"""What of a recording is to be compared: from a step to a step, and where the core's state is known to begin at.

The state is known where an engine process began, for its core was empty, and at each keyframe. It compares nothing.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.core.decisions import StepPlanned
from engine.core.vocabulary import CoreKeyframe, Entry, RecordingClosed, RecordingGap, UnknownRecord
from recorder.keyframes import first_in, last_at
from replay.lives import Life, Refuse, hole, missing, unknown_kind
from replay.refusal import CannotCompare

_GOES_ON = "behind it the comparison goes on at the next keyframe, where there is one"


class StepOf(NamedTuple):
    """A step of an engine process: the process counted from 1, 0 for the last one."""

    life: int
    step: int


class Span(NamedTuple):
    """
    first   the comparison begins at the nearest keyframe at or before it; None: at the recording's beginning
    last    … and ends when this step of the same engine process was planned; None: at the recording's end
    """

    first: StepOf | None = None
    last: int | None = None

    def lives_of(self, lives: Sequence[Life]) -> list[Life]:
        """Those that the span touches, in order. Raises CannotCompare."""
        if self.first is None:
            return list(lives) if self.last is None else [lives[0]]
        number = self.first.life or len(lives)
        if number > len(lives):
            raise CannotCompare(
                f"the recording holds {len(lives)} engine processes, none of number {number}",
                "reprise show REC says how many there are",
            )
        return list(lives[number - 1 :]) if self.last is None else [lives[number - 1]]


class Beginning(NamedTuple):
    """
    sequence      of the first entry that can be compared
    at_keyframe   the state is in the keyframe before it; else the core is new
    note          what the reader should know of it; "" for a life from its beginning
    """

    sequence: int
    at_keyframe: bool
    note: str


class Resumption(NamedTuple):
    """From this keyframe on the state is known again."""

    entry: Entry
    keyframe: CoreKeyframe


def add_span_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="from_step",
        type=step_of,
        metavar="[N:]STEP",
        help="begin at the nearest keyframe before this step (of engine process N, else of the last one)",
    )
    parser.add_argument("--to", dest="to_step", type=int, metavar="STEP", help="end when this step has been planned")


def span_of(args: Namespace) -> Span:
    return Span(args.from_step, args.to_step)


def step_of(text: str) -> StepOf:
    """[N:]STEP on the command line. Raises ArgumentTypeError."""
    life, colon, step = text.rpartition(":")
    if not step.isdecimal() or (colon and not (life.isdecimal() and int(life))):
        raise ArgumentTypeError(f"{text!r} is no step: give its number, or 2:NUMBER for one of the second process")
    return StepOf(int(life) if colon else 0, int(step))


def beginning_of(life: Life, step: int | None) -> Beginning:
    """The nearest place at or before the step where the core's state is known. Raises CannotCompare."""
    is_fresh, first = life.header.starts_fresh, life.header.first_sequence
    if step is None and is_fresh:
        return Beginning(first, False, "")
    keyframe = first_in(life.segments) if step is None else last_at(life.segments, step)
    if keyframe is not None:
        where = f"the keyframe at sequence {keyframe.sequence}, before step {keyframe.step} was planned"
        if step is not None:
            return Beginning(keyframe.sequence, True, f"began at {where}: what came before was not compared")
        name = life.segments[0].path.name
        text = f"{name} begins in mid-run, at sequence {first}: began at {where}; what came before it is not here"
        return Beginning(keyframe.sequence, True, text)
    if is_fresh:
        return Beginning(first, False, "no keyframe comes before that step: began with the engine process")
    if step is not None and first_in(life.segments) is not None:
        raise CannotCompare(f"the recording's keyframes all come after step {step}", "begin at a later step")
    assert life.refusal is not None, "it does not start fresh"
    raise life.refusal


def moments(
    life: Life, beginning: Beginning, refuse: Refuse, last_step: int | None = None
) -> Iterator[Entry | Resumption]:
    """Entries with an event or a keyframe, in order, where the state before them is known.

    refuse      called at each place where entries are missing, or cannot be understood; it goes on at the next keyframe
    last_step   the entry that planned it is the last one
    """
    is_lost = beginning.at_keyframe
    expected = beginning.sequence
    for entry in life.entries(beginning.sequence, keyframes=True):
        event = entry.event
        if isinstance(event, CoreKeyframe):
            if entry.sequence != expected and not is_lost:
                refuse(hole(expected, entry.sequence, _GOES_ON))
                is_lost = True
            if is_lost:
                is_lost, expected = False, entry.sequence
                yield Resumption(entry, event)
            else:
                yield entry
            continue
        if isinstance(event, RecordingClosed) or is_lost:
            continue
        refusal = _refusal(entry, expected)
        if refusal is not None:
            refuse(refusal)
            is_lost = True
            continue
        expected += 1
        yield entry
        if last_step is not None and _has_planned(entry, last_step):
            return


def stretches(found: Iterator[Entry | Resumption]) -> Iterator[tuple[Resumption | None, Iterator[Entry]]]:
    """`moments` in stretches without a gap: what each begins at, None for a new core, and its entries without the
    keyframes, to be exhausted before the next one is asked for."""
    beginnings: list[Resumption | None] = [None]

    def entries() -> Iterator[Entry]:
        for moment in found:
            if isinstance(moment, Resumption):
                beginnings.append(moment)
                return
            if not isinstance(moment.event, CoreKeyframe):
                yield moment

    while beginnings:
        yield beginnings.pop(), entries()


def _refusal(entry: Entry, expected: int) -> CannotCompare | None:
    event = entry.event
    if isinstance(event, RecordingGap):
        return missing(event.first_sequence, event.num_entries, event.cause, _GOES_ON)
    if entry.sequence != expected:
        return hole(expected, entry.sequence, _GOES_ON)
    unknown = next((record for record in (event, *entry.decisions) if isinstance(record, UnknownRecord)), None)
    return None if unknown is None else unknown_kind(entry.sequence, unknown.kind)


def _has_planned(entry: Entry, step: int) -> bool:
    return any(isinstance(decision, StepPlanned) and decision.step >= step for decision in entry.decisions)
