"""Rare situations that a simulation must reach (`mark_names.py`), found in the recorded entries, from outside.

So production code has no marks in it, and any recording can be asked which situations it holds.
"""

from collections.abc import Iterable

from engine.core.decisions import (
    AdmissionThrottled,
    FinishReason,
    PreemptMode,
    PreemptReason,
    RequestAdmitted,
    RequestDeferred,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StarvationCause,
    StarvationSeen,
    StepPlanned,
    TokensEmitted,
)
from engine.core.events import (
    ExecutorRestarted,
    FinishFlag,
    PolicyChanged,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
)
from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from tests.simulation.mark_names import (
    BY_DEFER_REASON,
    BY_KIND,
    BY_REJECT_REASON,
    DECODING,
    HALF_DONE,
    RECOMPUTING,
)


def marks_of(limits: Limits, entries: Iterable[Entry]) -> set[str]:
    """Which of MARKS the entries of one engine's life hold."""
    finder = _Finder(limits)
    for entry in entries:
        finder.read(entry)
    return finder.found


class _Seen:
    """A live request as the entries told of it."""

    def __init__(self, event: RequestArrived) -> None:
        self.num_prompt_tokens = event.num_prompt_tokens
        self.num_tokens = event.num_prompt_tokens
        self.num_computed = 0
        self.blocks: list[int] = []
        self.old_blocks: set[int] = set()  # held before its latest preemption
        self.num_swapped = 0  # computed tokens that lie in the host pool
        self.was_preempted = False
        self.is_running = False
        self.is_protected = False
        self.num_chunks = 0


class _Finder:
    def __init__(self, limits: Limits) -> None:
        self.found: set[str] = set()
        self._limits = limits
        self._live: dict[int, _Seen] = {}
        self._gone: set[int] = set()
        self._rows: dict[int, tuple[int, int]] = {}  # of the step under way: request → start, count
        self._cancelled_in_step: set[int] = set()
        self._given_up: dict[int, set[int]] = {}  # in this pass: victim → its blocks

    def read(self, entry: Entry) -> None:
        event, decisions = entry.event, entry.decisions
        if isinstance(event, RequestArrived) and not (decisions and isinstance(decisions[0], RequestRejected)):
            self._live[event.request] = _Seen(event)
        self._on_event(event)
        self._given_up = {}
        beneficiaries = [d.for_request for d in decisions if isinstance(d, RequestPreempted)]
        self._mark(len(beneficiaries) > len(set(beneficiaries)), "two give way for one")
        for decision in decisions:
            self._on_decision(decision)

    def _mark(self, holds: bool, name: str) -> None:
        if holds:
            self.found.add(name)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_event(self, event: object) -> None:
        match event:
            case RequestCancelled():
                self._on_cancelled(event.request)
            case StepCompleted():
                gone = bool(self._rows) and set(self._rows) <= self._cancelled_in_step
                self._mark(gone, "all rows of a step are cancelled before its result")
                self._mark(any(row[1] == FinishFlag.ERROR for row in event.emitted), "a row fails alone")
                for request, (start, count) in self._rows.items():
                    if request in self._live:
                        self._live[request].num_computed = start + count
                self._end_step()
            case StepFailed():
                counts = [count for _start, count in self._rows.values()]
                self._mark(True, "a step fails")
                self._mark(bool(self._cancelled_in_step), "a step fails of whose rows one was cancelled")
                self._mark(1 in counts and max(counts) > 1, "a step with prefill and decode fails")
                self._end_step()
            case PolicyChanged():
                self._mark(bool(self._rows), "the policy changes while a step is executed")
                waits = any(seen.was_preempted and not seen.is_running for seen in self._live.values())
                self._mark(waits, "the policy changes while somebody is preempted")
            case ExecutorRestarted():
                self._mark(bool(event.lost), "a request is lost with its engine")
            case _:
                pass

    def _on_cancelled(self, request: int) -> None:
        seen = self._live.get(request)
        self._mark(request in self._gone, "a cancel after the end")
        if seen is None:
            return
        if request in self._rows:
            self._cancelled_in_step.add(request)
            self._mark(True, "a cancel of a request being executed")
        self._mark(seen.was_preempted and not seen.is_running, "a cancel of a preempted request")
        self._mark(seen.num_swapped > 0, "a cancel of a swapped request")
        self._mark(seen.is_protected, "a cancel of a protected request")
        self._mark(not seen.was_preempted and not seen.is_running, "a cancel of one that never ran")

    def _end_step(self) -> None:
        self._rows, self._cancelled_in_step = {}, set()

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_decision(self, decision: object) -> None:
        match decision:
            case RequestAdmitted():
                self._on_admitted(decision)
            case RequestPreempted():
                self._on_preempted(decision)
            case StepPlanned():
                self._on_planned(decision)
            case TokensEmitted():
                for request, count in decision.rows:
                    self._live[request].num_tokens = self._live[request].num_prompt_tokens + count
            case RequestFinished():
                self._mark(decision.reason == FinishReason.KV_CACHE_EXHAUSTED, "a request outgrows the pool")
                self._mark(decision.reason == FinishReason.EXPIRED, "an expiry in the queue")
                self._live.pop(decision.request, None)
                self._gone.add(decision.request)
            case RequestDeferred():
                self._mark(decision.reason in BY_DEFER_REASON, BY_DEFER_REASON.get(decision.reason, ""))
            case RequestRejected():
                self._mark(decision.reason in BY_REJECT_REASON, BY_REJECT_REASON.get(decision.reason, ""))
            case StarvationSeen():
                self._live[decision.request].is_protected = True
                how = "passed over" if decision.cause == StarvationCause.PASSED_OVER else "preempted"
                self._mark(True, f"a request protected for having been {how}")
            case AdmissionThrottled():
                rises = decision.watermark_blocks > decision.watermark_before
                self._mark(True, "admission throttled" if rises else "admission released")
            case _:
                self.found.update(name for kind, name in BY_KIND.items() if isinstance(decision, kind))

    def _on_admitted(self, decision: RequestAdmitted) -> None:
        seen = self._live[decision.request]
        hits = set(decision.block_ids[: decision.num_hit_blocks])
        self._mark(bool(decision.evicted_blocks), "an admission evicts")
        given_up = set[int]().union(*self._given_up.values())
        self._mark(bool(hits & given_up), "a hit on a block whose owner is being preempted")
        self._mark(bool(hits & seen.old_blocks), "a preempted request finds its own blocks again")
        self._mark(
            any(hits & set(other.blocks) for other in self._live.values()), "a hit on a block that another one holds"
        )
        size = self._limits.block_size
        whole = seen.num_tokens % size == 0 and decision.num_hit_blocks == seen.num_tokens // size - 1
        self._mark(whole and bool(hits), "a prompt found in the cache but for its last block")
        seen.blocks, seen.is_running = list(decision.block_ids), True
        num_hits, is_copied = decision.num_hit_blocks, bool(decision.host_blocks)
        self._mark(is_copied and not hits, "a swapped request comes back whole")
        self._mark(
            is_copied and bool(hits), "a swapped request finds a part in the cache and the rest in the host pool"
        )
        in_cache = seen.num_swapped > 0 and not is_copied
        self._mark(in_cache, "a swapped request finds all of it in the cache")
        seen.num_computed, seen.num_chunks = max(num_hits * size, seen.num_swapped), 0
        seen.num_swapped = 0

    def _on_preempted(self, decision: RequestPreempted) -> None:
        seen = self._live[decision.request]
        is_prefill = seen.num_computed < seen.num_tokens - 1
        self._mark(is_prefill and decision.num_tokens_lost > 0, HALF_DONE)
        self._mark(not is_prefill, DECODING)
        self._mark(is_prefill and seen.was_preempted, RECOMPUTING)
        self._mark(decision.for_request == decision.request, "a request gives way to all others")
        self._mark(decision.chain_length == 2, "a cascade of two")
        self._mark(decision.chain_length == 3, "a cascade of three")
        urgent = decision.reason == PreemptReason.MORE_URGENT_WAITS
        self._mark(urgent, "the more urgent takes blocks of those that run")
        is_swap, worth = decision.mode == PreemptMode.SWAP, decision.swap_ns < decision.recompute_ns
        self._mark(is_swap and is_prefill, "a prefill half done is swapped")
        self._mark(not is_swap and worth, "the host pool has no room")
        self._mark(not worth and decision.recompute_ns > 0, "copies are too slow for a swap")
        seen.num_swapped = seen.num_computed if is_swap else 0
        self._given_up[decision.request] = seen.old_blocks = set(seen.blocks)
        seen.blocks, seen.was_preempted, seen.is_running = [], True, False

    def _on_planned(self, plan: StepPlanned) -> None:
        self._rows = {request: (start, count) for request, start, count in plan.rows}
        self._mark(bool(plan.evicted_blocks), "a decode evicts")
        for request, block in plan.new_blocks:
            self._live[request].blocks.append(block)
        for request, (_start, count) in self._rows.items():
            self._live[request].num_chunks += count > 1
            self._mark(self._live[request].num_chunks == 5, "a prefill in five chunks")
        waits = any(
            seen.is_running and seen.num_computed == seen.num_tokens - 1 and request not in self._rows
            for request, seen in self._live.items()
        )
        self._mark(waits, "decodes wait for prefill")
