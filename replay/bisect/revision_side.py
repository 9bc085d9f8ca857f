"""One side of a comparison of builds: a git revision, asked through its own `reprise trace`."""

import json
from pathlib import Path
from typing import Any

from replay.bisect.worktree import Worktree
from replay.model_runs.step_trace import ChainLink, Moved, StepKey, TracedRow
from replay.refusal import CannotCompare


class RevisionSide:
    """`Side` of `builds.py`. Both sides may share a worktree: each call checks its revision out."""

    def __init__(self, tree: Worktree, revision: str, recording: Path) -> None:
        self._tree, self._revision, self._recording = tree, revision, recording

    def chain(self, moved: Moved) -> list[ChainLink]:
        return [ChainLink(StepKey(*link["key"]), int(link["digest"], 16)) for link in self._trace()["steps"]]

    def rows(self, key: StepKey, moved: Moved) -> tuple[list[TracedRow], int]:
        values = self._trace("--life", str(key.life), "--step", str(key.step))
        rows = [
            TracedRow(row["request"], row["position"], tuple(int(word, 16) for word in row["digests"]), row["drawn"])
            for row in values["rows"]
        ]
        return rows, values["num_layers"]

    def _trace(self, *arguments: str) -> dict[str, Any]:
        self._tree.check_out(self._revision)
        trouble = self._tree.build()
        if trouble:
            raise CannotCompare(f"revision {self._revision} does not build: {trouble}")
        result = self._tree.replay("trace", str(self._recording), "--json", *arguments)
        if result.returncode:
            said = (result.stderr.strip().splitlines() or ["(nothing)"])[-1]
            raise CannotCompare(f"revision {self._revision} cannot trace: {said}")
        values: dict[str, Any] = json.loads(result.stdout)
        return values
