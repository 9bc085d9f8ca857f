"""What a predicate looks at: one life's entries, what its limits were, and, where they are there, contents and a model.

It comes from a recording on disk, from entries in memory, or from a performance.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from engine.core.contents import RequestContents
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.core.vocabulary import Entry, RecordingClosed
from recorder.header import Header
from recorder.reader import NoContents
from recorder.timeline import Timeline
from recorder.vault import Contents
from replay.lives import Life, Run
from replay.player import Player
from replay.refusal import CannotCompare
from replay.shrink.rehearsal import Performed
from replay.tokens import Computed
from replay.verdict import Verdict

_NO_SALT = bytes(16)
_ENGINE_ERROR = "engine error"  # as engine/process.py closes the recording of an engine that could not go on


class Stage(Protocol):
    """The recorded model, kept loaded between performances. `model_runs/stage.py` is one."""

    def alone(
        self, arrived: RequestArrived, contents: RequestContents, limits: Limits
    ) -> Generator[Computed, None, None]:
        """The request's tokens when it has the model, and an empty memory, to itself."""
        ...

    def text(self, token_ids: Sequence[int]) -> str: ...

    def execute(self, recording: Path) -> Verdict:
        """As `reprise execute`."""
        ...


@dataclass
class Evidence:
    """
    contents   None where no vault was kept, or only counts were performed
    stage      None where no model was opened
    error      what ended the engine; "" when nothing did
    path       the recording it was read from; None when it is in memory only
    """

    header: Header
    limits: Limits
    entries: Sequence[Entry]
    contents: Contents | None = None
    stage: Stage | None = None
    error: str = ""
    path: Path | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of_entries(cls, entries: Sequence[Entry], limits: Limits | None = None) -> "Evidence":
        limits = limits or Limits()
        return cls(Header(salt=_NO_SALT, limits=limits.to_dict()), limits, entries)

    @classmethod
    def of_performed(cls, performed: Performed, stage: Stage | None) -> "Evidence":
        contents = None
        if performed.prompts or stage is not None:
            tokens = {step: [(row.request, row.token_id) for row in rows] for step, rows in performed.tokens.items()}
            contents = Contents(dict(performed.prompts), tokens)
        return cls(performed.header, performed.limits, performed.entries, contents, stage, performed.error)

    @cached_property
    def timeline(self) -> Timeline:
        timeline = Timeline(self.limits, keep_spans=True)
        for entry in self.entries:
            timeline.apply(entry)
        return timeline

    def outputs(self, request: int) -> list[int]:
        """Its answer's tokens."""
        if self.contents is None:
            return []
        tokens = [token for rows in self.contents.tokens.values() for number, token in rows if number == request]
        return tokens[: self.timeline.spans[request].num_output_tokens]


def evidences_of(path: Path, stage: Stage | None = None, *, with_contents: bool = False) -> list[Evidence]:
    """One of each life that can be read. Raises RecordingError; CannotCompare when there is none."""
    lives = [life for life in Run.open(path).lives if life.refusal is None]
    if not lives:
        raise CannotCompare(f"{path} holds no beginning of an engine process", "give the whole run's folder")
    return [_of_life(life, path, stage, with_contents) for life in lives]


def _of_life(life: Life, path: Path, stage: Stage | None, with_contents: bool) -> Evidence:
    refusals: list[CannotCompare] = []
    entries = list(life.comparable_entries(refusals.append))
    contents = None
    if with_contents:
        try:
            contents = life.contents()
        except NoContents:
            contents = None
    notes = [refusal.reason for refusal in refusals]
    limits = Limits.from_dict(life.header.limits)
    return Evidence(life.header, limits, entries, contents, stage, _error_of(life), path, notes)


def _error_of(life: Life) -> str:
    """What the core raises on its last event, as it did then; or that the recording was closed after an error."""
    closed = [entry.event.cause for entry in life.entries() if isinstance(entry.event, RecordingClosed)]
    if _ENGINE_ERROR not in closed:
        return ""
    for turn in Player(life).turns():
        if turn.raised is not None:
            return turn.raised.error
    return _ENGINE_ERROR
