"""`reprise execute`: the model runs again over the recorded plans; tokens and digests must be equal, bit for bit.

It needs the vault and a machine of the recording's numerics class. It stops at the first difference: behind it every
number follows from other tokens.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.header import Header
from recorder.vault import Contents
from replay.divergence import NUM_ENTRIES_BEFORE, Divergence
from replay.environment import agree
from replay.execution_report import report
from replay.lives import Life, Run
from replay.model_runs.midway import MidwayRunner
from replay.model_runs.open_model import OpenedRunner, OpenRunner, Overrides, open_recorded_model
from replay.model_runs.reexecution import Counts, Reexecution, run
from replay.model_runs.replay_recording import ReplayRecording
from replay.own_policy import thawed_core
from replay.progress import Progress
from replay.refusal import CannotCompare
from replay.span import Beginning, Resumption, Span, beginning_of, moments, stretches
from replay.transcript import Trail
from replay.verdict import Verdict


def execute(
    path: Path,
    *,
    overrides: Overrides = Overrides(),  # noqa: B008  # immutable
    allow_numeric_drift: bool = False,
    open_runner: OpenRunner | None = None,
    span: Span = Span(),  # noqa: B008  # immutable
    record_dir: Path | None = None,
) -> Verdict:
    """Compare every token and digest in the recording with what the model computes now.

    span          what of the recording; all of it by default
    overrides     what stands in for the recorded model's name or backend
    open_runner   makes the runner of each life; tests hand in one without weights, or with a planted fault
    record_dir    where what comes out is recorded, for `view` and `diff`; of one engine process, from its beginning
    Raises CannotCompare, RecordingError or ModelError when it cannot begin.
    """
    recorded = Run.open(path)
    if record_dir is not None and (span.first is not None or len(recorded.lives) != 1):
        raise CannotCompare(
            f"--record keeps a whole replay of one engine process, and the recording holds {len(recorded.lives)}",
            "leave --from away, and name one segment's folder of a run without restarts",
        )
    session = _Execution(
        path, recorded, overrides, allow_numeric_drift, open_runner or open_recorded_model, span, record_dir
    )
    with Progress("execute", "steps", recorded.count_steps() if span == Span() else 0) as progress:
        return session.run(progress)


class _Execution:
    def __init__(
        self,
        path: Path,
        recorded: Run,
        overrides: Overrides,
        allow_drift: bool,
        open_runner: OpenRunner,
        span: Span,
        record_dir: Path | None,
    ) -> None:
        self._path = path
        self._recorded = recorded
        self._overrides = overrides
        self._allow_drift = allow_drift
        self._open_runner = open_runner
        self._span = span
        self._record_dir = record_dir
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
            with ExitStack() as stack:
                divergence = self._run_life(life, beginning, progress, stack)
            if divergence is not None:
                return self._verdict(progress, (divergence,))
        return self._verdict(progress, ())

    def _run_life(self, life: Life, beginning: Beginning, progress: Progress, stack: ExitStack) -> Divergence | None:
        contents = life.contents()
        opened = self._open_runner(life.header, self._overrides)
        agreement = agree(life.header, opened.numerics_class, opened.environment, allow_drift=self._allow_drift)
        self._notes += (*agreement.notes, *contents.notices, *filter(None, [beginning.note]))
        replayed = self._recording(life.header, opened, contents, stack)
        computing = opened.runner if replayed is None else replayed.listening_to(opened.runner)
        runner = MidwayRunner(computing, Limits.from_dict(life.header.limits))
        trail = Trail(life.opened_ns, NUM_ENTRIES_BEFORE)
        first_ns = 0

        def passed(entry: Entry) -> None:
            nonlocal first_ns
            first_ns = first_ns or entry.now_ns
            trail.pass_by(entry)
            progress.at(self._counts.steps)
            if replayed is not None:
                replayed.read(entry)

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
                if replayed is not None:
                    replayed.read(found[0])
                break
        self._span_ns += max(0, trail.last_ns - first_ns) if first_ns else 0
        return None if found is None else report(self._path, life, *found, trail, agreement.differences)

    def _recording(
        self, header: Header, opened: OpenedRunner, contents: Contents, stack: ExitStack
    ) -> ReplayRecording | None:
        if self._record_dir is None:
            return None
        replayed = ReplayRecording(self._record_dir, header, dict(opened.environment), contents)
        stack.callback(replayed.close)
        return replayed

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
            "prompt_digests": counts.prompt_digests,
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
