"""Six kinds of silent corruption, planted in a runner of any kind, and a load in which each does harm.

The runner is the real one; only what the fault says is done to its memory, its tables or its results.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from structlog.testing import capture_logs

from engine.clock import ManualClock
from engine.core.contents import RequestContents
from engine.core.decisions import Decision, RequestAdmitted, RequestPreempted, StepPlanned
from engine.core.events import AuditCompleted, KVMismatch, StepCompleted
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.interface import StepResult
from engine.execution.runner import ModelRunner
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop, NoRecord
from engine.protocol import Arrive, Message, Stop
from engine.self_audit import SelfAudit

AnyRunner = ModelRunner | ScriptedRunner


class Faulty:
    """Passes everything on to `runner`; a fault overrides what it changes. planted: steps executed when it struck."""

    def __init__(self, runner: AnyRunner, block_size: int) -> None:
        self.runner = runner
        self.block_size = block_size
        self.num_steps = 0
        self.planted: int | None = None
        self.prompt_digests = runner.prompt_digests
        self.add_request = runner.add_request

    def carry_out(self, decision: Decision) -> None:
        self.runner.carry_out(decision)

    def execute(self, plan: StepPlanned) -> StepResult:
        self.before_step(plan)
        result = self.after_step(plan, self.runner.execute(plan))
        self.num_steps += 1
        return result

    def before_step(self, plan: StepPlanned) -> None:
        pass

    def after_step(self, plan: StepPlanned, result: StepResult) -> StepResult:
        return result

    def strikes(self) -> bool:
        """Once."""
        if self.planted is not None:
            return False
        self.planted = self.num_steps
        return True

    def table(self, request: int) -> list[int]:
        return self.runner._requests[request].block_table

    def copy_slot(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        """(block, offset) each."""
        source_slot, target_slot = (block * self.block_size + offset for block, offset in (source, target))
        if isinstance(self.runner, ScriptedRunner):
            self.runner.slots[target_slot] = self.runner.slots[source_slot]
        else:
            self.runner.kv_store.copy_slot(source_slot, target_slot)


class StaleBlock(Faulty):
    """The prefix index leads request 2 to a block that holds another prompt by now: the first one of request 1."""

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, RequestAdmitted) and decision.request == 2 and self.strikes():
            assert decision.num_hit_blocks == 2
            decision = decision._replace(block_ids=(self.table(1)[0], *decision.block_ids[1:]))
        self.runner.carry_out(decision)


class OffByOneTable(Faulty):
    """For one step request 0 reads its second block where its first should be."""

    def before_step(self, plan: StepPlanned) -> None:
        if self.num_steps == 4 and self.strikes():
            self._saved = list(self.table(0))
            self.table(0)[0] = self._saved[1]

    def after_step(self, plan: StepPlanned, result: StepResult) -> StepResult:
        if self.planted == self.num_steps:
            self.table(0)[0] = self._saved[0]
        return result


class UseAfterFree(Faulty):
    """Someone who still has a block of request 0 writes to it after that one has ended."""

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, RequestAdmitted) and decision.request == 0:
            self._block = decision.block_ids[1]
        if isinstance(decision, RequestAdmitted) and decision.request == 3 and self.strikes():
            assert 0 not in self.runner._requests
            self.copy_slot((self._block, 1), (self._block, 0))
        self.runner.carry_out(decision)


class LateOutput(Faulty):
    """What was computed for a preempted request arrives in its block when that is another's already, and written."""

    def __init__(self, runner: AnyRunner, block_size: int) -> None:
        super().__init__(runner, block_size)
        self._lost: list[int] = []

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, RequestPreempted):
            self._lost = list(self.table(decision.request))
        self.runner.carry_out(decision)

    def after_step(self, plan: StepPlanned, result: StepResult) -> StepResult:
        for request, start, count in plan.rows:
            block = self.table(request)[start // self.block_size]
            if start % self.block_size == 0 and count == 1 and block in self._lost and self.strikes():
                self.copy_slot((self.table(request)[0], 1), (block, 0))
        return result


class SharedBlockWritten(Faulty):
    """Request 2 writes its own rows to a block that it shares with request 0."""

    def before_step(self, plan: StepPlanned) -> None:
        if 2 in self.runner._requests and len(self.table(2)) > 2 and self.strikes():
            assert self.table(2)[0] == self.table(0)[0]
            self.copy_slot((self.table(2)[1], 2), (self.table(2)[0], 1))


class SwappedRows(Faulty):
    """Two rows of request 0's first block change places in memory, after it was filled."""

    def after_step(self, plan: StepPlanned, result: StepResult) -> StepResult:
        if self.num_steps == 1 and self.strikes():
            first, spare = self.table(0)[0], self.table(0)[-1]
            free = self.block_size - 1  # of its last block: not written yet
            for source, target in (((first, 0), (spare, free)), ((first, 1), (first, 0)), ((spare, free), (first, 1))):
                self.copy_slot(source, target)
        return result


class SwappedResults(Faulty):
    """In one step two requests get each other's result."""

    def after_step(self, plan: StepPlanned, result: StepResult) -> StepResult:
        emitted = result.completed.emitted
        if self.num_steps == 3 and self.strikes():
            (one, *ones), (other, *others) = emitted[:2]
            swapped = ((one, *others), (other, *ones), *emitted[2:])
            completed = result.completed._replace(emitted=swapped)  # type: ignore[arg-type]  # rows, taken apart
            return result._replace(completed=completed)
        return result


class Outcome(NamedTuple):
    """
    mismatches, audits   of the entries, each with the number of steps completed before it
    planted              steps completed when the fault struck; None: it never did
    """

    entries: list[Entry]
    mismatches: list[tuple[int, KVMismatch]]
    audits: list[tuple[int, AuditCompleted]]
    planted: int | None
    block_size: int


class Inbox:
    """A message comes in during the step of its number, or when there is nothing left to do, audits included."""

    def __init__(self, messages: Sequence[tuple[int, Message]], num_steps: Callable[[], int]) -> None:
        self._messages = list(messages)
        self._num_steps = num_steps

    def get(self) -> Message:
        return self._messages.pop(0)[1] if self._messages else Stop("done")

    def drain(self) -> list[Message]:
        due = [message for step, message in self._messages if step < self._num_steps()]
        self._messages = self._messages[len(due) :]
        return due


def serve(
    make_runner: Callable[[int], AnyRunner], limits: Limits, fault: type[Faulty] = Faulty, *, is_pressed: bool = False
) -> Outcome:
    """The load of `messages`, every request audited. is_pressed: with so few blocks that one is preempted."""
    if is_pressed:
        limits = replace(limits, num_kv_blocks=9)
    faulty = fault(make_runner(limits.num_kv_blocks), limits.block_size)
    watch = faulty.runner.watch
    entries: list[Entry] = []
    audit = SelfAudit(1.0, limits, make_runner, watch)
    loop = EngineLoop(
        Core(limits),
        faulty,
        ManualClock(),
        NoRecord(),
        lambda entry, outputs: entries.append(entry),
        watch=watch,
        audit=audit,
    )
    with capture_logs():
        loop.serve(Inbox(messages(limits.block_size), lambda: faulty.num_steps))
    num_steps = 0
    mismatches, audits = list[tuple[int, KVMismatch]](), list[tuple[int, AuditCompleted]]()
    for entry in entries:
        num_steps += isinstance(entry.event, StepCompleted)
        if isinstance(entry.event, KVMismatch):
            mismatches.append((num_steps, entry.event))
        elif isinstance(entry.event, AuditCompleted):
            audits.append((num_steps, entry.event))
    return Outcome(entries, mismatches, audits, faulty.planted, limits.block_size)


def messages(block_size: int) -> list[tuple[int, Message]]:
    """Requests 0 and 2 share their first two blocks, and so does 3, which comes when the others have ended."""
    prefix = [tuple(range(first, first + 2 * block_size)) for first in (10, 300)]
    prompts = [(0, prefix[0]), (0, prefix[1]), (2, prefix[0]), (10**6, prefix[0])]
    return [(step, _arrive(number, of, block_size)) for number, (step, of) in enumerate(prompts)]


def _arrive(number: int, prefix: tuple[int, ...], block_size: int) -> Arrive:
    tail = tuple(range(700 + 10 * number, 702 + 10 * number))
    sampling = SamplingParams(temperature=0.8, seed=number, ignore_eos=True)
    return Arrive(number, f"r{number}", "t", 0, 0, 2 * block_size + 2, sampling, RequestContents(prefix + tail))
