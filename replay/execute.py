"""`reprise execute`: the model runs again over the recorded plans; tokens and digests must be equal, bit for bit.

It needs the vault and a machine of the recording's numerics class. It stops at the first difference: behind it every
number follows from other tokens.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.core.limits import Limits
from engine.core.vocabulary import Entry
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
from replay.environment import agree
from replay.lives import Life, Run
from replay.model_runs.midway import MidwayRunner
from replay.model_runs.open_model import OpenRunner, Overrides, open_recorded_model
from replay.model_runs.reexecution import Counts, Difference, FilledBlock, KVBlock, PromptDigest, Reexecution, run
from replay.own_policy import thawed_core
from replay.progress import Progress
from replay.refusal import CannotCompare
from replay.span import Beginning, Resumption, Span, beginning_of, moments, stretches
from replay.transcript import Trail, describe, name_of
from replay.verdict import Verdict


def execute(
    path: Path,
    *,
    overrides: Overrides = Overrides(),  # noqa: B008  # immutable
    allow_numeric_drift: bool = False,
    open_runner: OpenRunner | None = None,
    span: Span = Span(),  # noqa: B008  # immutable
) -> Verdict:
    """Compare every token and digest in the recording with what the model computes now.

    span          what of the recording; all of it by default
    overrides     what stands in for the recorded model's name or backend
    open_runner   makes the runner of each life; tests hand in one without weights, or with a planted fault
    Raises CannotCompare, RecordingError or ModelError when it cannot begin.
    """
    recorded = Run.open(path)
    session = _Execution(path, recorded, overrides, allow_numeric_drift, open_runner or open_recorded_model, span)
    with Progress("execute", "steps", recorded.count_steps() if span == Span() else 0) as progress:
        return session.run(progress)


class _Execution:
    def __init__(
        self, path: Path, recorded: Run, overrides: Overrides, allow_drift: bool, open_runner: OpenRunner, span: Span
    ) -> None:
        self._path = path
        self._recorded = recorded
        self._overrides = overrides
        self._allow_drift = allow_drift
        self._open_runner = open_runner
        self._span = span
        self._counts = Counts()
        self._span_ns = 0
        self._notes: list[str] = []
        self._refusals: list[CannotCompare] = []

    def run(self, progress: Progress) -> Verdict:
        for number, life in enumerate(self._span.lives_of(self._recorded.lives)):
            try:
                first = self._span.first if number == 0 else None
                beginning = beginning_of(life, None if first is None else first.step)
            except CannotCompare as refusal:
                self._refusals.append(refusal)
                continue
            divergence = self._run_life(life, beginning, progress)
            if divergence is not None:
                return self._verdict(progress, (divergence,))
        return self._verdict(progress, ())

    def _run_life(self, life: Life, beginning: Beginning, progress: Progress) -> Divergence | None:
        contents = life.contents()
        opened = self._open_runner(life.header, self._overrides)
        agreement = agree(life.header, opened.numerics_class, opened.environment, allow_drift=self._allow_drift)
        self._notes += (*agreement.notes, *contents.notices, *filter(None, [beginning.note]))
        runner = MidwayRunner(opened.runner, Limits.from_dict(life.header.limits))
        trail = Trail(life.opened_ns, NUM_ENTRIES_BEFORE)
        first_ns = 0

        def passed(entry: Entry) -> None:
            nonlocal first_ns
            first_ns = first_ns or entry.now_ns
            trail.pass_by(entry)
            progress.at(self._counts.steps)

        found = None
        for resumption, entries in stretches(moments(life, beginning, self._refusals.append, self._span.last)):
            reexecution = Reexecution(runner, contents, self._counts, agreement)
            try:
                if resumption is not None:
                    entries = self._go_on(life, runner, reexecution, resumption, contents, entries)
                found = run(reexecution, entries, passed)
            except CannotCompare as refusal:  # behind this place; what was before it has been compared
                self._refusals.append(refusal)
                for _entry in entries:
                    pass
            if found is not None:
                break
        self._span_ns += max(0, trail.last_ns - first_ns) if first_ns else 0
        return None if found is None else _report(self._path, life, *found, trail, agreement.differences)

    def _go_on(
        self,
        life: Life,
        runner: MidwayRunner,
        reexecution: Reexecution,
        resumption: Resumption,
        contents: Contents,
        entries: Iterator[Entry],
    ) -> Iterator[Entry]:
        """From a keyframe: the entries that can be compared. Raises CannotCompare when the keyframe is of no use."""
        rebuilt = runner.rebuild(thawed_core(life.header, resumption.keyframe), contents)
        reexecution.begin_at(rebuilt.counts, rebuilt.plan)
        self._notes.append(
            f"at sequence {resumption.entry.sequence} {len(rebuilt.counts)} requests were brought to where they stood, "
            f"{rebuilt.num_tokens} tokens computed again"
        )
        num_unknown = len(rebuilt.left_out)
        if num_unknown:
            self._notes.append(f"{num_unknown} requests under way are left out: the vault does not have their tokens")
        return rebuilt.without_left_out(entries)

    def _verdict(self, progress: Progress, divergences: tuple[Divergence, ...]) -> Verdict:
        counts = self._counts
        figures: dict[str, Any] = {
            "steps": counts.steps,
            "tokens": counts.tokens,
            "hidden_digests": counts.hidden_digests,
            "block_digests": counts.block_digests,
            "kv_digests": counts.kv_digests,
            "requests": counts.requests,
            "preemptions": counts.preemptions,
            "cancels": counts.cancels,
            "hit_blocks": counts.hit_blocks,
            "seconds": progress.elapsed_ns / 1e9,
            "recorded_seconds": self._span_ns / 1e9,
        }
        if self._span_ns:
            figures["ratio_to_recorded_time"] = progress.elapsed_ns / self._span_ns
        return Verdict(
            "execute",
            str(self._path),
            figures,
            divergences,
            notes=(*self._notes, *self._count_notes(), *self._recorded.notes()),
            refusal=self._refusals[0] if self._refusals else None,
        )

    def _count_notes(self) -> Iterator[str]:
        counts = self._counts
        if counts.failed_steps:
            yield f"{counts.failed_steps} steps failed when recorded: executed again, nothing to compare"
        if counts.steps_without_result:
            yield f"{counts.steps_without_result} planned steps have no recorded result: the recording ends there"
        if counts.tokens_not_in_vault:
            yield f"{counts.tokens_not_in_vault} tokens are not in the vault: only their digests were compared"


def _report(
    path: Path, life: Life, entry: Entry, difference: Difference, trail: Trail, environment: tuple[str, ...]
) -> Divergence:
    """The divergence found while following `entry`."""
    expected, got = difference.expected, difference.got
    record = expected if expected is not None else got
    differing = differences(expected, got)
    classification = _classification(difference)
    request = getattr(record, "request", -1)
    decided_on = entry.event if difference.plan is None else difference.plan
    if request >= 0 and not isinstance(record, PromptDigest):
        command = f"reprise isolate {shlex.quote(str(path))} {request}"
    else:
        command = f"reprise show {shlex.quote(str(path))} --transcript --around {entry.sequence}"
    return Divergence(
        place=Place(
            sequence=entry.sequence,
            time_ns=entry.now_ns - life.opened_ns,
            step=difference.plan.step if difference.plan else -1,
            request=request,
        ),
        classification=classification,
        expected=expected,
        got=got,
        differences=tuple(differing[:MAX_DIFFERENCES]),
        num_more_differences=max(0, len(differing) - MAX_DIFFERENCES),
        decided_on=f"{name_of(decided_on)} {describe(decided_on)}",
        before=trail.lines(),
        circumstances=(),
        environment=environment,
        likely_cause=_likely_cause(difference, classification),
        next_command=command,
    )


def _classification(difference: Difference) -> Classification:
    expected, got = difference.expected, difference.got
    is_token = isinstance(expected, EmittedToken) or isinstance(got, EmittedToken)
    return classify(expected, got, difference.top_logprobs) if is_token else Classification.STRUCTURAL


def _likely_cause(difference: Difference, classification: Classification) -> str:
    if isinstance(difference.got, Raised):
        return "carrying it out raised here and did not when recorded: read the error"
    if isinstance(difference.expected, PromptDigest):
        return "the vault's prompt is not the one that arrived, or the way digests are computed changed"
    if isinstance(difference.expected, KVBlock):
        return (
            "keys and values of a full block, though the tokens drawn so far are equal: what it was computed from was "
            "overwritten, stale or another's; or a kernel whose result is not fixed by its row"
        )
    if isinstance(difference.expected, FilledBlock) or isinstance(difference.got, FilledBlock):
        return "the tokens are equal, yet not the blocks they fill: the way digests are computed changed"
    match classification:
        case Classification.NUMERIC:
            return (
                "the same token from other bits: a kernel whose result is not fixed by its row (batch, chunk, thread "
                "count, memory placement), or keys and values that were overwritten or not yet written"
            )
        case Classification.TIE:
            return "the two most likely tokens are as good as equal here, so the smallest difference of bits swaps them"
        case Classification.TOKENS:
            return (
                "other tokens: keys and values of another request, a wrong block or position, another sampler state; "
                "or a kernel whose result depends on its batch"
            )
        case Classification.STRUCTURAL:
            return "a row emitted on one side only, or ended otherwise: stop conditions or the rows' counts changed"
