"""Answers by scanning a recording from its start, record after record: no core, no index, no keyframe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.core.decisions import (
    RequestAdmitted,
    RequestDeferred,
    RequestFinished,
    RequestPreempted,
    StepPlanned,
)
from engine.core.events import RequestArrived, StepCompleted
from engine.core.vocabulary import Entry, RecordingClosed
from recorder.reader import Recording


class Scan:
    """Everything up to an entry, the entry included, as the records say it.

    tables    request → blocks;   status   request → its last status;   running   in order of admission
    told      request → its last deferral since it was queued
    writes    block → (request, step) of each write, in order
    holds     block → [request, kind, from step, until step or None] of who had it, in order
    """

    def __init__(self, path: Path, sequence: int) -> None:
        self.entries = [
            entry for entry in Recording.open(path).entries() if not isinstance(entry.event, RecordingClosed)
        ]
        self.block_size = Recording.open(path).header.limits["block_size"]
        self.tables: dict[int, list[int]] = {}
        self.status: dict[int, str] = {}
        self.changes: dict[int, list[tuple[int, str]]] = {}
        self.running: list[int] = []
        self.told: dict[int, RequestDeferred] = {}
        self.writes: dict[int, list[tuple[int, int]]] = {}
        self.holds: dict[int, list[list[Any]]] = {}
        self.preemptions: list[tuple[int, int, RequestPreempted]] = []
        self.plan: StepPlanned | None = None
        self.step = -1
        self.at = min(sequence, len(self.entries) - 1)
        self._planned_tables: dict[int, list[int]] = {}
        self._swapped_in: list[tuple[int, int, int]] = []
        for entry in self.entries[: sequence + 1]:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        if isinstance(entry.event, StepCompleted) and self.plan is not None:
            self._write(self.plan)
        plans = [each for each in entry.decisions if isinstance(each, StepPlanned)]
        at = plans[0].step if plans else self.step + 1
        if isinstance(entry.event, RequestArrived):
            self._change(entry, entry.event.request, "waiting")
        for decision in entry.decisions:
            if isinstance(decision, RequestDeferred):
                self.told[decision.request] = decision
            elif isinstance(decision, RequestAdmitted):
                self._admit(entry, decision, at)
            elif isinstance(decision, RequestPreempted):
                self.preemptions.append((entry.sequence, at, decision))
                self._leave(entry, decision.request, at, "preempted")
            elif isinstance(decision, RequestFinished):
                self._leave(entry, decision.request, at, "finished")
            elif isinstance(decision, StepPlanned):
                self.plan, self.step = decision, decision.step
                for request, block in decision.new_blocks:
                    self.tables[request].append(block)
                    self.holds.setdefault(block, []).append([request, "allocated", at, None])
        if plans:
            self._planned_tables = {request: list(table) for request, table in self.tables.items()}

    def _admit(self, entry: Entry, decision: RequestAdmitted, at: int) -> None:
        self._change(entry, decision.request, "running")
        self.running.append(decision.request)
        self.told.pop(decision.request, None)
        self.tables[decision.request] = list(decision.block_ids)
        for place, block in enumerate(decision.block_ids):
            kind = "hit" if place < decision.num_hit_blocks else "allocated"
            self.holds.setdefault(block, []).append([decision.request, kind, at, None])
        first = decision.num_hit_blocks
        copied = decision.block_ids[first : first + len(decision.host_blocks)]
        self._swapped_in += [(block, decision.request, at) for block in copied]

    def _leave(self, entry: Entry, request: int, at: int, status: str) -> None:
        self._change(entry, request, status)
        if request in self.running:
            self.running.remove(request)
        self.told.pop(request, None)
        for block in self.tables.pop(request, []):
            for hold in self.holds[block]:
                if hold[0] == request and hold[3] is None:
                    hold[3] = at

    def _write(self, plan: StepPlanned) -> None:
        """Into the blocks as they were when it was planned: a cancelled request's rows were computed too."""
        done = list(self._swapped_in)
        for request, start, count in plan.rows:
            table = self._planned_tables[request]
            for token in range(start, start + count):
                done.append((table[token // self.block_size], request, plan.step))
        for block, request, step in dict.fromkeys(done):
            self.writes.setdefault(block, []).append((request, step))
        self._swapped_in = []

    def _change(self, entry: Entry, request: int, status: str) -> None:
        self.status[request] = status
        self.changes.setdefault(request, []).append((entry.sequence, status))

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def last_write(self, block: int) -> tuple[int, int] | None:
        return self.writes[block][-1] if self.writes.get(block) else None

    def readers(self, block: int) -> list[tuple[Any, ...]]:
        """Who has had it since its last writer got it."""
        written = self.last_write(block)
        if written is None:
            return []
        own = [place for place, hold in enumerate(self.holds[block]) if hold[0] == written[0] and hold[2] <= written[1]]
        return [tuple(hold) for hold in self.holds[block][own[-1] :]]

    def chain(self, preempted: RequestPreempted) -> list[tuple[int, int]]:
        return [
            (each.request, each.for_request)
            for _sequence, _at, each in self.preemptions
            if each.chain == preempted.chain and each.chain_length <= preempted.chain_length
        ]


def first_after(path: Path, sequence: int, holds: Callable[[Scan], bool]) -> int:
    return next(at for at in range(sequence + 1, len(Scan(path, -1).entries)) if holds(Scan(path, at)))


def last_before(path: Path, sequence: int, holds: Callable[[Scan], bool]) -> int:
    return next(at for at in range(sequence - 1, -1, -1) if holds(Scan(path, at)))
