"""`reprise isolate`: a recorded request runs again alone; its tokens and digests must be the bits it had in company.

A difference is a bug, never rounding: something of another request reached it, or a number depended on the batch. The
report names where, who was beside it, and whose blocks it had.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from engine.core.contents import RequestContents
from engine.core.limits import Limits
from engine.core.scheduler import Core
from replay.divergence import Divergence, Raised
from replay.environment import Agreement, agree
from replay.history import LifeHistory
from replay.isolation_report import Subject, Unequal, report, table
from replay.lives import Life, Run
from replay.model_runs.alone import run_alone
from replay.model_runs.kv_blocks import ComparingRunner
from replay.model_runs.open_model import OpenedRunner, OpenRunner, Overrides, open_recorded_model
from replay.model_runs.prove import prove_difference
from replay.own_policy import thawed_core
from replay.progress import Progress
from replay.proof import Proof
from replay.refusal import CannotCompare
from replay.span import Resumption, Span, beginning_of, moments
from replay.tokens import comparable_with
from replay.verdict import Verdict


def isolate(
    path: Path,
    request: str | None,
    *,
    overrides: Overrides = Overrides(),  # noqa: B008  # immutable
    allow_numeric_drift: bool = False,
    open_runner: OpenRunner | None = None,
    prove: bool = False,
    span: Span = Span(),  # noqa: B008  # immutable
) -> Verdict:
    """Compare a request's output, token by token, and the KV blocks that it filled, with what it computes alone.

    request       the client's request id, or the request's number; None isolates every request that emitted a token
    overrides, allow_numeric_drift, open_runner   as in `execute`
    prove         carry the recorded steps out again as well, and find the row, layer and operation that differ
    span          what of the recording; requests that were under way where it begins are compared from there on
    Raises CannotCompare, RecordingError or ModelError when it cannot begin.
    """
    run = Run.open(path)
    notes: list[str] = []
    subjects, refusals = _subjects(span.lives_of(run.lives), span, notes)
    if request is not None:  # what lies behind a gap does not matter to a request that was found before it
        subjects = _find(subjects, request, refusals)
        notes += [refusal.reason for refusal in refusals]
        refusals = []
    session = _Isolation(path, overrides, allow_numeric_drift, open_runner or open_recorded_model, prove=prove)
    comparing = [subject for subject in subjects if subject.request.tokens]
    num_silent = len(subjects) - len(comparing)
    with Progress("isolate", "requests", len(comparing)) as progress:
        for number, subject in enumerate(comparing):
            session.compare(subject)
            progress.at(number + 1)
        refusals += session.refusals
        seconds = progress.elapsed_ns / 1e9
    damaged = dict.fromkeys(notice for subject in subjects for notice in subject.contents.notices)
    notes += [*session.notes, *damaged, *run.notes()]
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
        tuple(table(session.divergences)) if request is None else (),
        refusals[0] if refusals else None,
    )


def _subjects(lives: list[Life], span: Span, notes: list[str]) -> tuple[list[Subject], list[CannotCompare]]:
    """Every request of the span, and why some of it could not be read."""
    subjects: list[Subject] = []
    refusals: list[CannotCompare] = []
    for number, life in enumerate(lives):
        first = span.first if number == 0 else None
        try:
            beginning = beginning_of(life, None if first is None else first.step)
        except CannotCompare as refusal:
            refusals.append(refusal)
            continue
        notes += [beginning.note] if beginning.note else []
        contents = life.contents()
        found = moments(life, beginning, refusals.append, span.last)
        history = LifeHistory(found, contents, partial(_thawed, life))
        requests = [*history.earlier, *history.requests.values()]
        subjects += [Subject(life, history, contents, request) for request in requests]
    return subjects, refusals


def _thawed(life: Life, resumption: Resumption) -> Core:
    return thawed_core(life.header, resumption.keyframe)


def _find(subjects: list[Subject], name: str, refusals: list[CannotCompare]) -> list[Subject]:
    """By the client's id first, else by number: one request, once for each engine it had. Raises CannotCompare."""
    found = [subject for subject in subjects if subject.request.arrived.request_id == name]
    if not found and name.isdecimal():
        found = [subject for subject in subjects if subject.request.arrived.request == int(name)]
    numbers_found = dict.fromkeys(subject.request.arrived.request for subject in found)
    if len(numbers_found) == 1:
        return found
    if found:
        numbers = ", ".join(str(number) for number in numbers_found)
        raise CannotCompare(f"{len(numbers_found)} requests bear the id {name!r}", f"give one's number: {numbers}")
    if refusals:
        raise refusals[0]
    raise CannotCompare(
        f"no request {name!r} among the {len(subjects)} of the recording", "reprise show REC --requests lists them"
    )


class _Isolation:
    """Runs subjects one after the other on one runner per life and collects what differs."""

    def __init__(
        self, path: Path, overrides: Overrides, allow_drift: bool, open_runner: OpenRunner, *, prove: bool
    ) -> None:
        self._path = path
        self._proves = prove
        self._overrides = overrides
        self._allow_drift = allow_drift
        self._open_runner = open_runner
        self._opened: dict[int, tuple[OpenedRunner, Agreement]] = {}  # by number of the life's first segment
        self.num_tokens = 0
        self.notes: list[str] = []
        self.divergences: list[Divergence] = []
        self.refusals: list[CannotCompare] = []

    def compare(self, subject: Subject) -> None:
        arrived = subject.request.arrived
        contents = subject.contents.prompts.get(arrived.request)
        if contents is not None and arrived.num_output_tokens > len(contents.output_token_ids):
            outputs = subject.contents.outputs(arrived.request)[: arrived.num_output_tokens]  # from before the span
            contents = contents._replace(output_token_ids=tuple(outputs))
        if contents is None or len(contents.output_token_ids) < arrived.num_output_tokens:
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
            divergence = report(self._path, subject, unequal, environment)
            if self._proves and unequal.raised is None:
                divergence = replace(divergence, proof=self._prove(subject, contents, unequal.num_equal))
            self.divergences.append(divergence)

    def _prove(self, subject: Subject, contents: RequestContents, num_equal: int) -> Proof | None:
        """In company with a KV memory that nobody has used. None: a note says why."""
        (alone, _, _), agreement = self._open(subject.life)
        try:
            return prove_difference(subject, contents, num_equal, alone, agreement)
        except CannotCompare as refusal:
            self.notes.append(f"request {subject.request.arrived.request}: nothing was proved: {refusal.reason}")
            return None

    def _open(self, life: Life) -> tuple[OpenedRunner, Agreement]:
        key = life.header.segment_number
        if key not in self._opened:
            opened = self._open_runner(life.header, self._overrides)
            agreement = agree(life.header, opened.numerics_class, opened.environment, allow_drift=self._allow_drift)
            self.notes += [note for note in agreement.notes if note not in self.notes]
            self._opened[key] = opened, agreement
        return self._opened[key]

    def _first_unequal(self, subject: Subject, contents: RequestContents) -> Unequal | None:
        request = subject.request
        opened, agreement = self._open(subject.life)
        limits = Limits.from_dict(subject.life.header.limits)
        runner = ComparingRunner(opened.runner, request.kv_digests if agreement.compare_bits else {})
        alone = run_alone(request.arrived, contents, limits, runner)
        num_equal = 0
        try:
            for expected, computed in zip(request.tokens, alone, strict=False):
                comparable = comparable_with(
                    computed.token,
                    expected,
                    compare_bits=agreement.compare_bits,
                    compare_flags=agreement.compare_flags,
                )
                if comparable != expected:
                    return Unequal(num_equal, computed, block=runner.first)
                num_equal += 1
        except Exception as error:
            return Unequal(num_equal, None, Raised(f"{type(error).__name__}: {error}"))
        finally:
            alone.close()
            self.num_tokens += num_equal
        told = runner.prompt if request.prompt is not None and agreement.compare_bits else None
        prompt = told if request.prompt is not None and told is not None and told != request.prompt[0] else None
        if num_equal == len(request.tokens) and runner.first is None and prompt is None:
            return None
        return Unequal(num_equal, None, block=runner.first, prompt=prompt)
