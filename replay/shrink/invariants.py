"""What every recording keeps to, read from its entries alone: which promise is broken first, and by whose request.

It follows blocks, rows and ends as the decisions tell them. Neither model nor core is needed, so it can be asked of any
recording, also of one that the core of today would repeat to the letter.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from engine.core.decisions import (
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
    TokensEmitted,
)
from engine.core.events import ExecutorRestarted, RequestArrived, StepCompleted, StepFailed
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.in_turn import InTurn


class Finding(NamedTuple):
    """What was found, in one sentence; `request` is whom it concerns, -1 where it is nobody's own; `sequence` where."""

    text: str
    request: int = -1
    sequence: int = -1


def first_broken(entries: Iterable[Entry], limits: Limits, *, has_died: bool = False) -> Finding | None:
    """The first promise that the entries break; None when they keep all of these:

    work that waits has a step under way; no block is given away while somebody holds it; what the prefix cache hits has
    been written; no more run, and no more tokens are in a step, than may; a row begins where its request has come to; a
    token is emitted by a row that reaches the last known one; whoever arrived ends once.

    has_died   the engine did not live to decide on the last entry
    """
    reading, entry = _Reading(limits), None
    for entry in entries:
        try:
            if reading.is_asleep:
                return reading.asleep(entry.sequence - 1)
            reading.read(entry)
        except _Broken as broken:
            return Finding(broken.args[0], broken.args[1], entry.sequence)
        except KeyError as error:
            return Finding(f"request {error} is decided on and does not live", int(error.args[0]), entry.sequence)
    if reading.is_asleep and not has_died:
        return reading.asleep(entry.sequence if entry else -1)
    return None


class _Broken(Exception):
    """The text and the request of a finding."""


class _Block:
    __slots__ = ("holders", "num_written", "writer")

    def __init__(self) -> None:
        self.holders: set[int] = set()
        self.writer = -1
        self.num_written = 0


class _Live:
    __slots__ = ("is_running", "num_computed", "num_known", "table")

    def __init__(self, num_prompt_tokens: int) -> None:
        self.num_known = num_prompt_tokens
        self.num_computed = 0
        self.table: list[int] = []
        self.is_running = False


class _Reading:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._live: dict[int, _Live] = {}
        self._blocks = [_Block() for _ in range(limits.num_kv_blocks)]
        self._ended: set[int] = set()
        self._is_duplicate = False  # what has just arrived bears the number of a live one
        self._in_turn = InTurn()
        self._plan: StepPlanned | None = None
        self._tables: dict[int, list[int]] = {}  # of the step under way
        self._reaching: set[int] = set()  # whose row in the step just completed reached the last known token
        self._handlers: dict[type[Any], Any] = {
            RequestAdmitted: self._on_admitted,
            RequestPreempted: self._on_preempted,
            RequestFinished: self._on_finished,
            RequestRejected: self._on_rejected,
            StepPlanned: self._on_planned,
            TokensEmitted: self._on_emitted,
        }

    def read(self, recorded: Entry) -> None:
        entry = self._in_turn(recorded)
        event = entry.event
        match event:
            case RequestArrived():
                self._on_arrived(event)
            case StepCompleted():
                self._on_completed()
            case StepFailed() | ExecutorRestarted():
                self._plan = None
        for decision in entry.decisions:
            if handler := self._handlers.get(type(decision)):
                handler(decision)

    @property
    def is_asleep(self) -> bool:
        """Somebody waits, and no step is under way that would end it."""
        return bool(self._live) and self._plan is None

    def asleep(self, sequence: int) -> Finding:
        num_live, oldest = len(self._live), min(self._live)
        return Finding(
            f"{num_live} requests want a step and none is under way, request {oldest} first", oldest, sequence
        )

    def _on_arrived(self, event: RequestArrived) -> None:
        self._is_duplicate = event.request in self._live
        if not self._is_duplicate:
            self._live[event.request] = _Live(event.num_prompt_tokens + event.num_output_tokens)
            self._ended.discard(event.request)

    def _on_rejected(self, decision: RequestRejected) -> None:
        if not self._is_duplicate:
            del self._live[decision.request]

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_admitted(self, decision: RequestAdmitted) -> None:
        request, size = decision.request, self._limits.block_size
        for block in decision.block_ids[: decision.num_hit_blocks]:
            known = self._blocks[block]
            if known.num_written < size:
                raise _Broken(
                    f"request {request} hits block {block}, of which request {known.writer} has written "
                    f"{known.num_written} of {size} tokens",
                    known.writer,
                )
            known.holders.add(request)
        for block in decision.block_ids[decision.num_hit_blocks :]:
            self._give(block, request)
        copied = decision.block_ids[decision.num_hit_blocks :][: len(decision.host_blocks)]
        for block in copied:
            self._blocks[block].num_written = size
        live = self._live[request]
        live.table, live.is_running, live.num_computed = list(decision.block_ids), True, -1
        num_running = sum(other.is_running for other in self._live.values())
        if num_running > self._limits.max_num_seqs:
            raise _Broken(
                f"request {request} is admitted as the {num_running}th that runs, at most "
                f"{self._limits.max_num_seqs} may",
                request,
            )

    def _give(self, block: int, request: int) -> None:
        known = self._blocks[block]
        if known.holders:
            holder = min(known.holders)
            raise _Broken(f"block {block} is given to request {request} while request {holder} holds it", request)
        known.holders, known.writer, known.num_written = {request}, request, 0

    def _on_preempted(self, decision: RequestPreempted) -> None:
        self._release(decision.request)
        live = self._live[decision.request]
        live.is_running = False

    def _on_finished(self, decision: RequestFinished) -> None:
        if decision.request in self._ended:
            raise _Broken(f"request {decision.request} ends twice", decision.request)
        if decision.request in self._live:
            self._release(decision.request)
            del self._live[decision.request]
            self._ended.add(decision.request)

    def _release(self, request: int) -> None:
        live = self._live[request]
        for block in live.table:
            self._blocks[block].holders.discard(request)
        live.table = []

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_planned(self, plan: StepPlanned) -> None:
        for request, block in plan.new_blocks:
            self._give(block, request)
            self._live[request].table.append(block)
        num_tokens = sum(count for _request, _start, count in plan.rows)
        if num_tokens > self._limits.max_num_batched_tokens:
            raise _Broken(
                f"step {plan.step} computes {num_tokens} tokens, at most {self._limits.max_num_batched_tokens} may be",
                plan.rows[0][0],
            )
        for request, start, count in plan.rows:
            live = self._live[request]
            if live.num_computed not in (-1, start) or count < 1 or start + count > live.num_known:
                raise _Broken(
                    f"step {plan.step} has {count} tokens of request {request} from {start} on; it has come to "
                    f"{live.num_computed} of {live.num_known}",
                    request,
                )
        self._tables = {request: list(self._live[request].table) for request, _start, _count in plan.rows}
        self._plan = plan

    def _on_completed(self) -> None:
        plan, self._plan = self._plan, None
        self._reaching = set()
        if plan is None:
            return
        size = self._limits.block_size
        for request, start, count in plan.rows:
            for index in range(start // size, -(-(start + count) // size)):
                known = self._blocks[self._tables[request][index]]
                known.num_written = max(known.num_written, min(size, start + count - index * size))
            live = self._live.get(request)
            if live is not None:
                live.num_computed = start + count
                if live.num_computed == live.num_known:
                    self._reaching.add(request)

    def _on_emitted(self, decision: TokensEmitted) -> None:
        for request, _num_output_tokens in decision.rows:
            if request not in self._reaching:
                raise _Broken(
                    f"step {decision.step} emits a token of request {request}, whose row did not reach its last token",
                    request,
                )
            self._live[request].num_known += 1
