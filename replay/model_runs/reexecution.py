"""Carries a recorded life's decisions out again on a runner and compares every result with the recorded one.

The plans are the recorded ones, so neither scheduler nor clock takes part: what differs was computed differently. A
step is executed where it was planned, and compared where its result stands in the stream; what happened between the
two (arrivals, cancels) is then in the same order as it was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.core.decisions import (
    Decision,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StepPlanned,
)
from engine.core.events import KVMismatch, RequestArrived, RequestCancelled, StepCompleted, StepFailed
from engine.core.kv_mismatch import taken_out, without_rows
from engine.core.vocabulary import Entry
from engine.execution.interface import Runner, StepResult
from recorder.in_turn import InTurn
from recorder.vault import Contents
from replay.divergence import Raised
from replay.environment import Agreement
from replay.refusal import CannotCompare
from replay.tokens import (
    UNKNOWN_TOKEN,
    OutputCounter,
    computed_tokens,
    first_difference,
    recorded_tokens,
)


@dataclass
class Counts:
    """What was carried out and compared, over all lives."""

    steps: int = 0
    tokens: int = 0
    hidden_digests: int = 0
    block_digests: int = 0
    kv_digests: int = 0
    prompt_digests: int = 0
    requests: int = 0
    preemptions: int = 0
    cancels: int = 0
    hit_blocks: int = 0
    failed_steps: int = 0  # they raised when recorded, so there is nothing to compare
    steps_without_result: int = 0  # planned, but the recording ends before their result
    tokens_not_in_vault: int = 0


class PromptDigest(NamedTuple):
    """Digest of one full block of a prompt."""

    request: int
    block_index: int
    digest: bytes


class FilledBlock(NamedTuple):
    """Digest of a block that a step filled."""

    request: int
    block_index: int
    digest: bytes


class KVBlock(NamedTuple):
    """Digest of the keys and values in a block that a step filled."""

    request: int
    block_index: int
    kv_digest: int


class PromptLogprobsDigest(NamedTuple):
    """Of what a request was told of its prompt's tokens."""

    request: int
    num_tokens: int
    logprobs_digest: int


class Difference(NamedTuple):
    """The first difference: both sides, and what was being carried out.

    plan           the step that computed it; None when it is about an arrival
    top_logprobs   the alternatives computed now, where there are any
    """

    expected: Any
    got: Any
    plan: StepPlanned | None
    top_logprobs: tuple[tuple[int, float], ...] = ()


class Reexecution:
    """One life on one runner. `handle` the entries in order; it returns the first difference."""

    def __init__(self, runner: Runner, contents: Contents, counts: Counts, agreement: Agreement) -> None:
        self._runner = runner
        self._contents = contents
        self._counts = counts
        self._compare_bits = agreement.compare_bits
        self._compare_flags = agreement.compare_flags
        self._counter_recorded, self._counter_now = OutputCounter(), OutputCounter()
        self._in_turn = InTurn()
        self._plan: StepPlanned | None = None
        self._result: StepResult | Raised | None = None
        self._handlers: dict[type[Any], Callable[[Any, Entry], Difference | None]] = {
            RequestArrived: self._on_arrived,
            RequestCancelled: self._on_cancelled,
            StepCompleted: self._on_step_completed,
            StepFailed: self._on_step_failed,
            KVMismatch: self._on_kv_mismatch,
        }

    def handle(self, entry: Entry) -> Difference | None:
        """Follow one entry: its event first, then its decisions."""
        entry = self._in_turn(entry)
        if not isinstance(entry.event, KVMismatch):  # whoever that one takes out of the step is not computed in it
            self._execute_planned()
        handler = self._handlers.get(type(entry.event))
        difference = handler(entry.event, entry) if handler else None
        if difference is None:
            for decision in entry.decisions:
                difference = self._follow(decision)  # type: ignore[arg-type]  # unknown records never come here
                if difference is not None:
                    break
        return difference

    def begin_at(self, counts: dict[int, int], plan: StepPlanned | None) -> None:
        """In the middle of a life: the output tokens that requests had, and the step under way."""
        for request, num_output_tokens in counts.items():
            self._counter_recorded.begin(request, num_output_tokens)
            self._counter_now.begin(request, num_output_tokens)
        if plan is not None:
            self._follow(plan)

    def finish(self) -> None:
        """The entries have ended: a step whose result was not recorded is only counted."""
        if self._plan is not None:
            self._counts.steps_without_result += 1

    def _on_arrived(self, event: RequestArrived, entry: Entry) -> Difference | None:
        contents = self._contents.prompts.get(event.request)
        if contents is None:
            if any(isinstance(decision, RequestRejected) for decision in entry.decisions):
                return None  # it was refused, so nothing was computed for it
            raise CannotCompare(
                f"the vault holds no prompt of request {event.request} ({event.request_id})",
                "it was lost when the recording was cut off; the requests before it can be isolated",
            )
        self._counts.requests += 1
        self._counter_recorded.begin(event.request, event.num_output_tokens)
        self._counter_now.begin(event.request, event.num_output_tokens)
        digests = self._runner.prompt_digests(contents)
        for index, (expected, got) in enumerate(zip(event.prompt_digests, digests, strict=False)):
            self._counts.block_digests += 1
            if expected != got:
                return Difference(
                    PromptDigest(event.request, index, expected), PromptDigest(event.request, index, got), None
                )
        self._runner.add_request(event.request, event.sampling, contents, digests)
        return None

    def _on_cancelled(self, event: RequestCancelled, entry: Entry) -> None:
        self._counts.cancels += any(isinstance(decision, RequestFinished) for decision in entry.decisions)

    def _follow(self, decision: Decision) -> Difference | None:
        if isinstance(decision, StepPlanned):
            self._plan = decision
            return None
        self._counts.preemptions += isinstance(decision, RequestPreempted)
        if isinstance(decision, RequestAdmitted):
            self._counts.hit_blocks += decision.num_hit_blocks
        try:
            self._runner.carry_out(decision)
        except Exception as error:  # a decision about a request that never arrived: the recording was changed
            return Difference(decision, _raised(error), None)
        return None

    def _on_kv_mismatch(self, event: KVMismatch, entry: Entry) -> None:
        if self._plan is not None:
            self._plan = without_rows(self._plan, taken_out(entry.decisions))

    def _execute_planned(self) -> None:
        if self._plan is None or self._result is not None:
            return
        try:
            self._result = self._runner.execute(self._plan)
        except Exception as error:  # compared with the recorded result when that comes
            self._result = _raised(error)

    def _take_result(self, step: int) -> tuple[StepPlanned, StepResult | Raised]:
        plan, result, self._plan, self._result = self._plan, self._result, None, None
        if plan is None or result is None or plan.step != step:
            raise CannotCompare(f"the recording holds a result of step {step}, but no plan of it", "run reprise check")
        return plan, result

    def _on_step_failed(self, event: StepFailed, entry: Entry) -> None:
        self._take_result(event.step)
        self._counts.failed_steps += 1

    def _on_step_completed(self, event: StepCompleted, entry: Entry) -> Difference | None:
        plan, result = self._take_result(event.step)
        self._counts.steps += 1
        if isinstance(result, Raised):
            return Difference(event, result, plan)
        expected = recorded_tokens(event, self._contents.tokens.get(event.step, ()), self._counter_recorded)
        got = computed_tokens(result.completed, result.outputs, self._counter_now)
        differing = first_difference(expected, got, compare_bits=self._compare_bits, compare_flags=self._compare_flags)
        if differing is not None:
            left, right = differing
            return Difference(left, right.token if right else None, plan, right.top_logprobs if right else ())
        num_unknown = sum(1 for token in expected if token.token_id == UNKNOWN_TOKEN)
        self._counts.tokens_not_in_vault += num_unknown
        self._counts.tokens += len(got) - num_unknown
        self._counts.hidden_digests += len(got) if self._compare_bits else 0
        return self._filled_blocks(event, result.completed, plan)

    def _filled_blocks(self, expected: StepCompleted, got: StepCompleted, plan: StepPlanned) -> Difference | None:
        for index in range(max(len(expected.filled), len(got.filled))):
            left, right = _filled(expected, index), _filled(got, index)
            if left != right:
                return Difference(left, right, plan)
            self._counts.block_digests += 1
        if not self._compare_bits:
            return None
        return self._kv_blocks(expected, got, plan) or self._prompts(expected, got, plan)

    def _kv_blocks(self, expected: StepCompleted, got: StepCompleted, plan: StepPlanned) -> Difference | None:
        """Where both sides kept digests of what lies in them."""
        for left, right in zip(expected.kv_digests, got.kv_digests, strict=False):
            if left != right:
                return Difference(KVBlock(*left), KVBlock(*right), plan)
            self._counts.kv_digests += 1
        return None

    def _prompts(self, expected: StepCompleted, got: StepCompleted, plan: StepPlanned) -> Difference | None:
        now = {digest[0]: digest for digest in got.prompt_logprobs}
        for recorded in expected.prompt_logprobs:
            if now.get(recorded[0]) != recorded:
                computed = now.get(recorded[0])
                return Difference(
                    PromptLogprobsDigest(*recorded), PromptLogprobsDigest(*computed) if computed else None, plan
                )
            self._counts.prompt_digests += 1
        return None


def _raised(error: Exception) -> Raised:
    return Raised(f"{type(error).__name__}: {error}")


def _filled(completed: StepCompleted, index: int) -> FilledBlock | None:
    if index >= len(completed.filled):
        return None
    request, digest = completed.filled[index]
    return FilledBlock(request, index, digest)


def run(
    reexecution: Reexecution, entries: Iterator[Entry], passed: Callable[[Entry], None]
) -> tuple[Entry, Difference] | None:
    """All entries in order; the entry of the first difference and what differs, or None.

    passed   told of each entry that was equal
    """
    for entry in entries:
        difference = reexecution.handle(entry)
        if difference is not None:
            return entry, difference
        passed(entry)
    reexecution.finish()
    return None
