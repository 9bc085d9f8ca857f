"""`reprise isolate`: a recorded request runs again alone; its tokens and digests must be the bits it had in company.

A difference is a bug, never rounding: something of another request reached it, or a number depended on the batch. The
report names where, who was beside it, and whose blocks it had.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.core.contents import RequestContents
from engine.core.limits import Limits
from recorder.vault import Contents
from replay.divergence import (
    MAX_DIFFERENCES,
    NUM_ENTRIES_BEFORE,
    Classification,
    Divergence,
    EmittedToken,
    Place,
    Raised,
    classify,
    differences,
)
from replay.environment import Agreement, agree
from replay.history import LifeHistory, Moment, RequestHistory
from replay.lives import Life, Run
from replay.model_runs.alone import run_alone
from replay.model_runs.open_model import OpenedRunner, OpenRunner, Overrides, open_recorded_model
from replay.progress import Progress
from replay.refusal import CannotCompare
from replay.tokens import Computed, comparable_with
from replay.transcript import Trail
from replay.verdict import Verdict

MAX_NAMED = 12  # requests named in one line of a report


class Unequal(NamedTuple):
    """The first output token that differs, after `num_equal`. `computed` is None when the request ended before it."""

    num_equal: int
    computed: Computed | None
    raised: Raised | None = None


class _Subject(NamedTuple):
    """A request to be isolated, within its life."""

    life: Life
    history: LifeHistory
    contents: Contents
    request: RequestHistory


def isolate(
    path: Path,
    request: str | None,
    *,
    overrides: Overrides = Overrides(),  # noqa: B008  # immutable
    allow_numeric_drift: bool = False,
    open_runner: OpenRunner | None = None,
) -> Verdict:
    """Compare a request's output, token by token, with what it computes alone.

    request       the client's request id, or the request's number; None isolates every request that emitted a token
    overrides, allow_numeric_drift, open_runner   as in `execute`
    Raises CannotCompare, RecordingError or ModelError when it cannot begin.
    """
    run = Run.open(path)
    subjects, refusals = _subjects(run.lives)
    if request is not None:
        subjects = [_find(subjects, request, refusals)]
    session = _Isolation(path, overrides, allow_numeric_drift, open_runner or open_recorded_model)
    comparing = [subject for subject in subjects if subject.request.tokens]
    num_silent = len(subjects) - len(comparing)
    with Progress("isolate", "requests", len(comparing)) as progress:
        for number, subject in enumerate(comparing):
            session.compare(subject)
            progress.at(number + 1)
        refusals += session.refusals
        seconds = progress.elapsed_ns / 1e9
    damaged = dict.fromkeys(notice for subject in subjects for notice in subject.contents.notices)
    notes = [*session.notes, *damaged, *run.notes()]
    if num_silent:
        notes.append(f"{num_silent} requests emitted no token: nothing to compare")
    if not comparing and not refusals:
        refusals.append(CannotCompare("no output token was recorded", "isolate a request that emitted at least one"))
    return Verdict(
        "isolate",
        str(path),
        {"requests": len(comparing), "tokens": session.num_tokens, "seconds": seconds},
        tuple(session.divergences),
        tuple(notes),
        tuple(session.table()) if request is None else (),
        refusals[0] if refusals else None,
    )


def _subjects(lives: list[Life]) -> tuple[list[_Subject], list[CannotCompare]]:
    """Every request of the recording, and why some of it could not be read."""
    subjects: list[_Subject] = []
    refusals: list[CannotCompare] = []
    for life in lives:
        if life.refusal is not None:
            refusals.append(life.refusal)
            continue
        contents = life.contents()
        history = LifeHistory(life.comparable_entries(refusals.append), contents)
        subjects += [_Subject(life, history, contents, request) for request in history.requests.values()]
    return subjects, refusals


def _find(subjects: list[_Subject], name: str, refusals: list[CannotCompare]) -> _Subject:
    """By the client's id first, else by number. Raises CannotCompare."""
    found = [subject for subject in subjects if subject.request.arrived.request_id == name]
    if not found and name.isdecimal():
        found = [subject for subject in subjects if subject.request.arrived.request == int(name)]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = ", ".join(str(subject.request.arrived.request) for subject in found)
        raise CannotCompare(f"{len(found)} requests bear the id {name!r}", f"give one's number: {numbers}")
    if refusals:
        raise refusals[0]
    raise CannotCompare(
        f"no request {name!r} among the {len(subjects)} of the recording", "reprise show REC --requests lists them"
    )


class _Isolation:
    """Runs subjects one after the other on one runner per life and collects what differs."""

    def __init__(self, path: Path, overrides: Overrides, allow_drift: bool, open_runner: OpenRunner) -> None:
        self._path = path
        self._overrides = overrides
        self._allow_drift = allow_drift
        self._open_runner = open_runner
        self._opened: dict[int, tuple[OpenedRunner, Agreement]] = {}  # by number of the life's first segment
        self.num_tokens = 0
        self.notes: list[str] = []
        self.divergences: list[Divergence] = []
        self.refusals: list[CannotCompare] = []

    def compare(self, subject: _Subject) -> None:
        arrived = subject.request.arrived
        contents = subject.contents.prompts.get(arrived.request)
        if contents is None:
            self.refusals.append(
                CannotCompare(
                    f"the vault holds no prompt of request {arrived.request} ({arrived.request_id})",
                    "its contents were lost when the recording was cut off; the other requests can be isolated",
                )
            )
            return
        unequal = self._first_unequal(subject, contents)
        if unequal is not None:
            environment = self._open(subject.life)[1].differences
            self.divergences.append(_report(self._path, subject, unequal, environment))

    def table(self) -> Iterator[str]:
        """One line per request that differs."""
        if self.divergences:
            yield f"{'request':>7} {'token':>6} {'step':>7} {'what':<10} {'recorded':>9} {'alone':>9}  field"
        for divergence in self.divergences:
            expected, got = divergence.expected, divergence.got
            alone = str(got.token_id) if isinstance(got, EmittedToken) else "(none)"
            fields = ", ".join(difference.field for difference in divergence.differences)
            yield (
                f"{expected.request:>7} {expected.output_index:>6} {divergence.place.step:>7} "
                f"{divergence.classification:<10} {expected.token_id:>9} {alone:>9}  {fields}"
            )

    def _open(self, life: Life) -> tuple[OpenedRunner, Agreement]:
        key = life.header.segment_number
        if key not in self._opened:
            opened = self._open_runner(life.header, self._overrides)
            agreement = agree(life.header, opened.numerics_class, opened.environment, allow_drift=self._allow_drift)
            self.notes += [note for note in agreement.notes if note not in self.notes]
            self._opened[key] = opened, agreement
        return self._opened[key]

    def _first_unequal(self, subject: _Subject, contents: RequestContents) -> Unequal | None:
        request = subject.request
        opened, agreement = self._open(subject.life)
        limits = Limits.from_dict(subject.life.header.limits)
        alone = run_alone(request.arrived, contents, limits, opened.runner)
        num_equal = 0
        try:
            for expected, computed in zip(request.tokens, alone, strict=False):
                if comparable_with(computed.token, expected, compare_bits=agreement.compare_bits) != expected:
                    return Unequal(num_equal, computed)
                num_equal += 1
        except Exception as error:
            return Unequal(num_equal, None, Raised(f"{type(error).__name__}: {error}"))
        finally:
            alone.close()
            self.num_tokens += num_equal
        return Unequal(num_equal, None) if num_equal < len(request.tokens) else None


def _report(path: Path, subject: _Subject, unequal: Unequal, environment: tuple[str, ...]) -> Divergence:
    request = subject.request
    expected, moment = request.tokens[unequal.num_equal], request.moments[unequal.num_equal]
    got = unequal.computed.token if unequal.computed else unequal.raised
    top_logprobs = unequal.computed.top_logprobs if unequal.computed else ()
    classification = classify(expected, got if isinstance(got, EmittedToken) else None, top_logprobs)
    number = request.arrived.request
    return Divergence(
        place=Place(moment.sequence, moment.now_ns - subject.life.opened_ns, moment.step, request=number),
        classification=classification,
        expected=expected,
        got=got,
        differences=tuple(differences(expected, got)[:MAX_DIFFERENCES]),
        num_more_differences=0,
        decided_on=(
            f"request {number} ({request.arrived.request_id}) alone, from its {request.arrived.num_prompt_tokens} "
            f"prompt tokens; {unequal.num_equal} of {len(request.tokens)} output tokens were equal before"
        ),
        before=_entries_before(subject.life, moment.sequence),
        circumstances=tuple(_circumstances(subject, moment)),
        environment=environment,
        likely_cause=_likely_cause(classification, moment, unequal),
        next_command=f"reprise execute {path}",
    )


def _entries_before(life: Life, sequence: int) -> tuple[str, ...]:
    trail = Trail(life.opened_ns, NUM_ENTRIES_BEFORE)
    for entry in life.entries():
        if entry.sequence >= sequence:
            break
        trail.pass_by(entry)
    return trail.lines()


def _circumstances(subject: _Subject, moment: Moment) -> Iterator[str]:
    request = subject.request
    neighbours = subject.history.neighbours(moment.step, request.arrived.request)
    yield f"in step {moment.step} with {_numbers(neighbours)}" if neighbours else f"alone in step {moment.step}, too"
    yield f"before it: preempted {moment.num_preemptions} times, {moment.num_hit_blocks} blocks from the prefix cache"
    if request.lenders:
        lenders = [f"{number} (block {block})" for number, block in list(request.lenders.items())[:MAX_NAMED]]
        more = f" and {len(request.lenders) - MAX_NAMED} more" if len(request.lenders) > MAX_NAMED else ""
        yield f"its blocks were held before by requests {', '.join(lenders)}{more}"


def _numbers(requests: list[int]) -> str:
    named = ", ".join(str(number) for number in requests[:MAX_NAMED])
    more = f" and {len(requests) - MAX_NAMED} more" if len(requests) > MAX_NAMED else ""
    return f"requests {named}{more}"


def _likely_cause(classification: Classification, moment: Moment, unequal: Unequal) -> str:
    if unequal.raised is not None:
        return "executing it alone raised: read the error"
    if unequal.computed is None:
        return "alone it ended earlier: a stop condition that depends on more than the request's own tokens"
    if classification is Classification.TIE:
        return "the two most likely tokens are as good as equal, so the smallest difference of bits swaps them"
    suspects = ["another request's keys and values in its blocks", "a kernel whose result depends on the batch"]
    if moment.num_hit_blocks:
        suspects.insert(0, "blocks from the prefix cache that do not hold its prompt's keys and values")
    if moment.num_preemptions:
        suspects.insert(0, "recomputing after preemption that did not restore what was there")
    return "; or ".join(suspects) + ". If execute is equal, the fault is in the record's own run and happens every time"
