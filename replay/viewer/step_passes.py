"""Answers about many steps from few passes through the core: forward from one wanted step to the next, and anew from a
keyframe where that is nearer. For whoever wants hundreds; one alone is `answers/step.py` and `answers/blocks.py`.

They are the same answers. It must not know what becomes of them.
"""

import contextlib
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from engine.core.vocabulary import Entry
from replay.refusal import CannotCompare
from replay.time_machine.places import Place, keyframe_before
from replay.time_machine.time_machine import TimeMachine
from replay.viewer.answers import answers
from replay.viewer.answers.blocks import mismatches
from replay.viewer.answers.blocks import of_state as blocks_of_state
from replay.viewer.answers.blocks import told_of as told_blocks
from replay.viewer.answers.step import StepPlace, command, of_state, place_of, told_of
from replay.viewer.block_ages import BlockAges
from replay.viewer.errors import BadQuestion
from replay.viewer.framing import Array
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed


class StepAnswers(NamedTuple):
    """blocks: None where the pool at that step is not known; `step` says why."""

    life: int
    number: int
    step: dict[str, Any]
    blocks: bytes | None


@dataclass(slots=True)
class _Open:
    """A wanted step that the pass has come to. at_step, pool: of the state behind its plan, once it has been there."""

    place: StepPlace
    entries: list[Entry] = field(default_factory=list)
    at_step: dict[str, Any] | None = None
    pool: dict[str, Array] | None = None


def step_answers(viewed: Viewed, folder: Path | None, wanted: Sequence[tuple[int, int]]) -> Iterator[StepAnswers]:
    """
    folder   where the index is kept
    wanted   (life, step), in order
    """
    names: dict[int, str] = {}
    with closing(TimeMachine(viewed.path, folder)) as machine, viewed.database() as database:
        for life in sorted({life for life, _ in wanted}):
            opened_ns, ages = viewed.opened_ns(life), BlockAges(database, life)
            places = [place_of(database, life, opened_ns, step) for each, step in wanted if each == life]
            for it in _passed(machine, deque(places)):
                yield _answers(viewed, database, it, ages, names)


def _answers(
    viewed: Viewed, database: sqlite3.Connection, it: _Open, ages: BlockAges, names: dict[int, str]
) -> StepAnswers:
    life, number = it.place.life, it.place.number
    if it.at_step is None or it.pool is None:  # not known, or only from elsewhere
        values = Parameters({"life": str(life), "step": str(number)})
        blocks = None
        with contextlib.suppress(BadQuestion, CannotCompare):
            blocks = answers()["blocks/{life}/{step}"](viewed, values)
        return StepAnswers(life, number, answers()["step/{life}/{step}"](viewed, values), blocks)
    told = told_of(database, it.place, it.entries, it.at_step, names)
    found = ages.at(number, it.place.last_sequence, len(it.pool["owner"]))
    blocks = told_blocks(life, number, it.pool, found, mismatches(database, life, number))
    return StepAnswers(life, number, {**told, "state_reason": "", "command": command(viewed, it.place)}, blocks)


def _passed(machine: TimeMachine, pending: deque[StepPlace]) -> Iterator[_Open]:
    """Each in turn; what the core cannot be brought to is given out as it stands."""
    while pending:
        open_ones: list[_Open] = []
        num_before = len(pending)
        try:
            yield from _one_pass(machine, pending, open_ones)
        except CannotCompare:
            if len(pending) == num_before:
                yield _Open(pending.popleft())
        yield from open_ones  # the recording, or what is known of it, ends before their results


def _one_pass(machine: TimeMachine, pending: deque[StepPlace], open_ones: list[_Open]) -> Iterator[_Open]:
    life = pending[0].life
    for state in machine.forward(Place(life, pending[0].first_sequence - 1)):
        assert state.entry is not None, "only a life's beginning has none"
        sequence = state.entry.sequence
        while pending and pending[0].first_sequence <= sequence:
            open_ones.append(_Open(pending.popleft()))
        for it in open_ones:
            it.entries.append(state.entry)
            if sequence == it.place.row["sequence"]:
                it.at_step, it.pool = of_state(state), blocks_of_state(state)
        while open_ones and open_ones[0].place.last_sequence <= sequence:
            yield open_ones.pop(0)
        if not open_ones and (not pending or _is_nearer_elsewhere(machine, pending[0], sequence)):
            return


def _is_nearer_elsewhere(machine: TimeMachine, place: StepPlace, sequence: int) -> bool:
    """A keyframe lies between."""
    keyframe = keyframe_before(machine.database, place.life, place.first_sequence)
    return keyframe is not None and keyframe > sequence + 1
