"""Which git revision brought a difference: `git bisect` in a worktree aside, replay verbs or a command the judge.

git chooses the revisions, so merges and skipped ones are its matter. The judge is `check`, then, where the recording
holds contents, `execute` of the revision's own sources; or any shell command, as `git bisect run` takes it: 0 good,
125 cannot be told, else bad. Between the last good and the first bad revision the step, layer and operation are looked
for, where both have `reprise trace`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from replay.bisect.builds import Parting, where_they_part
from replay.bisect.revision_side import RevisionSide
from replay.bisect.worktree import Worktree, worktree_of
from replay.progress import Progress
from replay.refusal import CannotCompare

CANNOT_TELL = 125


class Judgement(StrEnum):
    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


Judge = Callable[[Worktree], tuple[Judgement, str]]  # and why


@dataclass(slots=True)
class RevisionsVerdict:
    """
    tested      (revision, judgement, why) in the order of testing
    first_bad   the revision, "" where none was found
    """

    recording: str
    tested: list[tuple[str, Judgement, str]] = field(default_factory=list)
    first_bad: str = ""
    subject: str = ""
    parting: Parting | None = None
    notes: list[str] = field(default_factory=list)
    refusal: CannotCompare | None = None
    verb: str = "bisect"

    @property
    def exit_code(self) -> int:
        return 1 if self.first_bad else 2

    def as_text(self) -> str:
        lines = [f"{revision[:12]}  {judgement:<5} {why}".rstrip() for revision, judgement, why in self.tested]
        if self.first_bad:
            lines.append(f"bisect: first bad revision {self.first_bad[:12]} {self.subject}")
        if self.parting is not None:
            lines.append(f"  bits first differ at {self.parting.place}")
            lines.append(f"  {self.parting.expected.digest} before it, {self.parting.got.digest} since")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def as_json(self) -> str:
        values: dict[str, Any] = {
            "verb": self.verb,
            "recording": self.recording,
            "result": "diverged" if self.first_bad else "cannot_compare",
            "exit_code": self.exit_code,
            "first_bad": self.first_bad,
            "subject": self.subject,
            "tested": [{"revision": revision, "judgement": judge, "why": why} for revision, judge, why in self.tested],
            "first_difference": None if self.parting is None else self.parting.place._asdict(),
            "notes": self.notes,
            "reason": self.refusal.reason if self.refusal else "",
            "remedy": self.refusal.remedy if self.refusal else "",
        }
        return json.dumps(values, indent=2)


def bisect_revisions(
    repository: Path, good: str, bad: str, judge: Judge, recording: Path | None = None, *, builds: bool = True
) -> RevisionsVerdict:
    """Search the revisions between `good` and `bad`; both are judged first.

    recording   laid between the last good and the first bad revision at the end; None: it is not
    builds      each revision's native library is built when its sources are others
    Raises CannotCompare when the ends are not what they are said to be, or git refuses.
    """
    verdict = RevisionsVerdict(str(recording or ""))
    with worktree_of(repository, bad) as tree, Progress("bisect", "revisions") as progress:
        search = _Search(tree, judge, verdict, progress, builds=builds)
        search.require(good, Judgement.GOOD)
        search.require(bad, Judgement.BAD)
        search.run(good, bad)
        if verdict.first_bad and recording is not None:
            _look_beneath(tree, recording, verdict, progress)
    return verdict


class _Search:
    def __init__(
        self, tree: Worktree, judge: Judge, verdict: RevisionsVerdict, progress: Progress, *, builds: bool
    ) -> None:
        self._tree, self._judge, self._verdict, self._progress = tree, judge, verdict, progress
        self._builds = builds

    def require(self, revision: str, expected: Judgement) -> None:
        self._tree.check_out(revision)
        judgement, why = self._judge_here()
        if judgement is not expected:
            raise CannotCompare(
                f"revision {revision} is {judgement}, not {expected}" + (f": {why}" if why else ""),
                f"give another --{expected} revision, or look at it with --command",
            )

    def run(self, good: str, bad: str) -> None:
        said = self._tree.git("bisect", "start", bad, good)
        while "is the first bad commit" not in said:
            if "Bisecting:" not in said:
                self._verdict.refusal = CannotCompare("only revisions that cannot be judged are left", said.strip())
                self._verdict.notes.append("only revisions that cannot be judged are left between good and bad")
                return
            judgement, _why = self._judge_here()
            said = self._tree.git("bisect", str(judgement), check=False)
        self._verdict.first_bad = said.partition(" is the first bad commit")[0].split()[-1]
        self._verdict.subject = self._tree.git("log", "-1", "--format=%s", self._verdict.first_bad).strip()

    def _judge_here(self) -> tuple[Judgement, str]:
        revision = self._tree.git("rev-parse", "HEAD").strip()
        trouble = self._tree.build() if self._builds else ""
        judgement, why = (Judgement.SKIP, f"does not build: {trouble}") if trouble else self._judge(self._tree)
        self._verdict.tested.append((revision, judgement, why))
        self._progress.at(len(self._verdict.tested))
        return judgement, why


def judge_by_command(command: str) -> Judge:
    """A shell command, run in the revision's worktree with its packages first on PYTHONPATH."""

    def judge(tree: Worktree) -> tuple[Judgement, str]:
        code = tree.run(command).returncode
        known = {0: Judgement.GOOD, CANNOT_TELL: Judgement.SKIP}
        return known.get(code, Judgement.BAD), f"exit code {code}"

    return judge


def judge_by_replay(recording: Path, *, executes: bool, options: tuple[str, ...] = ()) -> Judge:
    """`check`, then `execute` where `executes`; a recording that cannot be compared there is skipped."""

    def judge(tree: Worktree) -> tuple[Judgement, str]:
        verbs: list[tuple[str, ...]] = [("check",)]
        if executes:
            verbs.append(("execute", "--allow-numeric-drift", *options))
        for verb, *flags in verbs:
            result = tree.replay(verb, str(recording), *flags)
            said = (result.stdout.strip() or result.stderr.strip()).splitlines() or [""]
            if result.returncode == 1:
                return Judgement.BAD, f"{verb}: {said[0]}"
            if result.returncode:
                return Judgement.SKIP, f"{verb}: {(result.stderr.strip().splitlines() or said)[0]}"
        return Judgement.GOOD, ""

    return judge


def _look_beneath(tree: Worktree, recording: Path, verdict: RevisionsVerdict, progress: Progress) -> None:
    sides = [RevisionSide(tree, revision, recording) for revision in (f"{verdict.first_bad}^", verdict.first_bad)]
    try:
        verdict.parting, num_steps = where_they_part(sides[0], sides[1], progress.at)
    except CannotCompare as refusal:
        verdict.notes.append(f"the layer and operation cannot be had: {refusal.reason}")
        return
    if verdict.parting is None:
        verdict.notes.append(f"both revisions give equal bits in the first {num_steps} steps: they decide otherwise")
