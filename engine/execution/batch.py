"""Planned step → the rows that are really computed, and the arrays that a backend takes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.core.decisions import StepPlanned
from engine.execution.held_request import HeldRequest
from kernels.backend import StepBatch
from kernels.packing import SequenceRows, pack_batch


class PlannedRow(NamedTuple):
    """A row of the plan whose request is held: its tokens start … end-1."""

    number: int
    request: HeldRequest
    start: int
    end: int

    @property
    def emits(self) -> bool:
        """It reaches the last known token, so the next one follows from it. Asked before that one is appended."""
        return self.end == len(self.request.tokens)


def planned_rows(plan: StepPlanned, requests: Mapping[int, HeldRequest]) -> list[PlannedRow]:
    """The plan's rows in order, less those whose request is gone, or has come to its end since they were planned."""
    return [
        PlannedRow(number, requests[number], start, start + count)
        for number, start, count in plan.rows
        if number in requests and not requests[number].has_ended
    ]


def step_batch(rows: Sequence[PlannedRow], block_size: int) -> StepBatch:
    """The arrays of at least one row."""
    sequences = [
        SequenceRows(row.request.tokens[row.start : row.end], row.start, row.request.block_table, int(row.emits))
        for row in rows
    ]
    return pack_batch(sequences, block_size)
