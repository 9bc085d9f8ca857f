"""Entries → what goes on now, what each request's life was, and totals: the one reading behind /metrics and `show`.

The same code reads the stream live and afterwards, so both give the same figures. It takes any entry: those of
requests whose arrival it never saw (the recording begins later, or has a gap) count where they can.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from engine.core.decisions import (
    AdmissionThrottled,
    FinishReason,
    PreemptMode,
    PrefixIndexDropped,
    RequestAdmitted,
    RequestDeferred,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    StarvationSeen,
    StepPlanned,
    ThrashingBegan,
    ThrashingEnded,
    TokensEmitted,
)
from engine.core.events import (
    AuditCompleted,
    ExecutorRestarted,
    KVMismatch,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
    StepLaunched,
)
from engine.core.limits import Limits
from engine.core.vocabulary import Entry, RecordingGap
from recorder.in_turn import InTurn
from recorder.recent_ends import RecentEnds
from recorder.request_span import Phase, RequestSpan
from recorder.totals import Totals


class Timeline:
    """Apply entries in order; read the attributes at any moment between.

    live                  request → span of those waiting, running or preempted; an ended one is forgotten
    spans                 with `keep_spans`: all of them, refused and ended ones included, each with its details;
                          without `keep_histories` of these only the times of its tokens
    limits                of the engine that runs; None until one has begun
    num_running           gauge
    num_waiting           gauge, preempted ones included
    waiting_by_reason     gauge, of those waiting that were told why
    num_kv_blocks, num_blocks_free   of the pool; free or evictable. 0 until the limits are known
    num_host_blocks, num_host_blocks_used   of the host pool; used by swapped requests
    is_thrashing          gauge: between ThrashingBegan and ThrashingEnded
    watermark_blocks      gauge: blocks that an admission leaves free
    num_entries, num_gap_entries     entries seen, and those that gaps stand for
    first_ns, last_ns     now_ns of the first and the last entry seen
    """

    def __init__(self, limits: Limits | None = None, *, keep_spans: bool = False, keep_histories: bool = True) -> None:
        self.totals = Totals()
        self.live: dict[int, RequestSpan] = {}
        self.spans: dict[int, RequestSpan] = {}
        self.limits = limits
        self.num_running = 0
        self.num_waiting = 0
        self.waiting_by_reason: Counter[str] = Counter()
        self.num_kv_blocks = 0
        self.num_blocks_free = 0
        self.num_host_blocks = 0
        self.num_host_blocks_used = 0
        self.is_thrashing = False
        self.watermark_blocks = 0
        self.num_entries = 0
        self.num_gap_entries = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self._keep_spans = keep_spans
        self._keep_histories = keep_spans and keep_histories
        self._ends = RecentEnds()
        self._num_step_tokens = 0
        self._planned = (-1, 0)  # the step under way, and since when it is
        self._counted_step = -1  # the latest whose blocks are counted
        self._in_turn = InTurn()
        self._on_record: dict[type[Any], Callable[[Any, int], None]] = {
            RequestCancelled: self._on_cancelled,
            StepCompleted: self._on_step_completed,
            StepFailed: self._on_step_failed,
            RecordingGap: self._on_gap,
            KVMismatch: self._on_kv_mismatch,
            AuditCompleted: self._on_audit_completed,
            PrefixIndexDropped: self._on_index_dropped,
            RequestDeferred: self._on_deferred,
            RequestAdmitted: self._on_admitted,
            RequestPreempted: self._on_preempted,
            StarvationSeen: self._on_starvation_seen,
            StepPlanned: self._on_step_planned,
            TokensEmitted: self._on_tokens_emitted,
            RequestFinished: self._on_finished,
            ThrashingBegan: self._on_thrashing_began,
            ThrashingEnded: self._on_thrashing_ended,
            AdmissionThrottled: self._on_throttled,
        }
        if limits is not None:
            self.begin_engine(limits)

    @property
    def kv_cache_usage(self) -> float:
        """Share of the KV blocks that requests hold, 0 to 1; cached blocks that nobody holds count as free."""
        return (self.num_kv_blocks - self.num_blocks_free) / self.num_kv_blocks if self.num_kv_blocks else 0.0

    def begin_engine(self, limits: Limits) -> None:
        """A new engine process begins with an empty pool of this size."""
        self.limits = limits
        self._in_turn.forget()
        self._counted_step = -1
        self.num_kv_blocks = self.num_blocks_free = limits.num_kv_blocks
        self.num_host_blocks = limits.swap_space_blocks
        self.is_thrashing = False
        self.watermark_blocks = limits.watermark_permille * limits.num_kv_blocks // 1000

    def apply(self, entry: Entry) -> None:
        """Take one entry into account. Cost: a few µs, and less than one for each further row."""
        now_ns = entry.now_ns
        self.num_entries += 1
        if self.first_ns is None:
            self.first_ns = now_ns
        self.last_ns = now_ns
        entry = self._in_turn(entry)
        event, decisions = entry.event, entry.decisions
        num_decisions = self.totals.num_decisions
        if type(event) is RequestArrived:
            self._on_arrived(event, decisions, now_ns)
        elif on_event := self._on_record.get(type(event)):
            on_event(event, now_ns)
        for decision in decisions:
            kind = type(decision)
            num_decisions[kind] = num_decisions.get(kind, 0) + 1
            if on_decision := self._on_record.get(kind):
                on_decision(decision, now_ns)
        if type(event) is StepLaunched and self._in_turn.ahead is not None:
            self._count_blocks(self._in_turn.ahead)
        elif type(event) is ExecutorRestarted:
            self._begin_again(event, now_ns)

    # ── a request comes, waits, runs and ends ────────────────────────────────────────────────────────────────────

    def _on_arrived(self, event: RequestArrived, decisions: tuple[Any, ...], now_ns: int) -> None:
        """A refused request never waits, not even for a moment; its number may be that of a live one."""
        refusal = decisions[0] if decisions else None
        if type(refusal) is RequestRejected and refusal.request == event.request:
            self.totals.rejected[refusal.reason] += 1
            if self._keep_spans and event.request not in self.live:
                span = self._new_span(event, now_ns)
                span.phase, span.outcome, span.ended_ns = Phase.ENDED, refusal.reason, now_ns
                self._note(span, now_ns, refusal)
            return
        if event.num_handovers and self._goes_on(event, now_ns):
            return
        self.totals.num_requests += 1
        self.num_waiting += 1
        span = self.live[event.request] = self._new_span(event, now_ns)
        if event.num_output_tokens:  # its first token stands in an earlier recording
            span.last_token_ns = now_ns

    def _goes_on(self, event: RequestArrived, now_ns: int) -> bool:
        """It is known from the engine before; of one whose end that engine recorded but did not deliver all is told."""
        span = self.live.get(event.request)
        if span is not None:
            span.is_between_engines = False
            self._note(span, now_ns, event)
        return span is not None or self._ends.repeats(event.request)

    def _new_span(self, event: RequestArrived, now_ns: int) -> RequestSpan:
        span = RequestSpan(event, now_ns, keep_times=self._keep_spans, keep_history=self._keep_histories)
        if self._keep_spans:
            self.spans[event.request] = span
        return span

    def _on_cancelled(self, event: RequestCancelled, now_ns: int) -> None:
        self.totals.cancels[event.cause] += 1
        span = self.live.get(event.request)
        if span is not None and span.is_between_engines:  # no engine holds it: nobody else ends it
            self.totals.finished[FinishReason.CANCELLED] += 1
            self._end(span, FinishReason.CANCELLED, now_ns)

    def _on_deferred(self, decision: RequestDeferred, now_ns: int) -> None:
        self.totals.deferrals[decision.reason] += 1
        span = self.live.get(decision.request)
        if span is None:
            return
        self._end_deferral(span, decision.num_passes, now_ns)
        span.num_passes_told += decision.num_passes
        span.deferral = decision.reason
        self.waiting_by_reason[decision.reason] += 1
        self._note(span, now_ns, decision)

    def _end_deferral(self, span: RequestSpan, num_passes: int, now_ns: int) -> None:
        if span.deferral:
            self.waiting_by_reason[span.deferral] -= 1
        span.end_deferral(num_passes, now_ns)

    def _on_admitted(self, decision: RequestAdmitted, now_ns: int) -> None:
        self.totals.num_evicted_blocks += len(decision.evicted_blocks)
        self.totals.num_swapped_in_blocks += len(decision.host_blocks)
        span = self.live.get(decision.request)
        if span is None:
            return
        self._swap(span, 0)
        self._end_deferral(span, decision.num_passes - span.num_passes_told, now_ns)
        span.num_passes_told = 0
        if span.first_admitted_ns is None:
            span.first_admitted_ns = now_ns
        self._move(span, Phase.RUNNING)
        self._note(span, now_ns, decision)

    def _on_preempted(self, decision: RequestPreempted, now_ns: int) -> None:
        self.totals.num_preemptions += 1
        self.totals.preemptions[decision.reason] += 1
        self.totals.num_tokens_lost += decision.num_tokens_lost
        if decision.chain_length == 2:
            self.totals.num_cascades += 1
        self.totals.preemption_chain_length.observe(decision.chain_length)
        self.totals.longest_cascade = max(self.totals.longest_cascade, decision.chain_length)
        self.num_blocks_free += decision.num_blocks_freed
        is_swap = decision.mode == PreemptMode.SWAP
        self.totals.num_swaps += is_swap
        self.totals.num_swapped_out_blocks += len(decision.host_blocks)
        span = self.live.get(decision.request)
        if span is None:
            return
        span.num_preemptions += 1
        span.num_swaps += is_swap
        self._swap(span, len(decision.host_blocks))
        span.deferral_since_ns = now_ns
        self._move(span, Phase.PREEMPTED)
        self._note(span, now_ns, decision)

    def _swap(self, span: RequestSpan, num_host_blocks: int) -> None:
        """From now on it has so many blocks in the host pool."""
        self.num_host_blocks_used += num_host_blocks - span.num_host_blocks
        span.num_host_blocks = num_host_blocks

    def _on_starvation_seen(self, decision: StarvationSeen, now_ns: int) -> None:
        self.totals.starvations[decision.cause] += 1

    def _on_thrashing_began(self, decision: ThrashingBegan, now_ns: int) -> None:
        self.totals.num_thrashings += 1
        self.is_thrashing = True

    def _on_thrashing_ended(self, decision: ThrashingEnded, now_ns: int) -> None:
        self.is_thrashing = False

    def _on_throttled(self, decision: AdmissionThrottled, now_ns: int) -> None:
        self.watermark_blocks = decision.watermark_blocks

    def _on_kv_mismatch(self, event: KVMismatch, now_ns: int) -> None:
        self.totals.num_kv_mismatches += 1

    def _on_audit_completed(self, event: AuditCompleted, now_ns: int) -> None:
        self.totals.audits[event.result] += 1
        self.totals.num_audited_tokens += event.num_tokens

    def _on_index_dropped(self, decision: PrefixIndexDropped, now_ns: int) -> None:
        self.totals.num_evicted_blocks += decision.num_blocks

    def _on_finished(self, decision: RequestFinished, now_ns: int) -> None:
        self.num_blocks_free += decision.num_blocks_freed
        span = self.live.get(decision.request)
        if span is None and self._ends.is_repeated(decision.request):
            return
        self.totals.finished[decision.reason] += 1
        if span is not None:
            self._note(span, now_ns, decision)
            self._end(span, decision.reason, now_ns)

    def _end(self, span: RequestSpan, outcome: str, now_ns: int) -> None:
        self._end_deferral(span, 0, now_ns)
        self._swap(span, 0)
        self._move(span, Phase.ENDED)
        span.outcome, span.ended_ns = outcome, now_ns
        del self.live[span.request]
        self._ends.note(span)
        self.totals.add_ended(span)

    def _move(self, span: RequestSpan, phase: Phase) -> None:
        """Into another phase, with the gauges."""
        self.num_running += (phase is Phase.RUNNING) - (span.phase is Phase.RUNNING)
        self.num_waiting += (phase in _WAITING_PHASES) - (span.phase in _WAITING_PHASES)
        span.phase = phase

    def _note(self, span: RequestSpan, now_ns: int, record: Any) -> None:
        if span.history is not None:
            span.history.append((now_ns, record))

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _count_blocks(self, decision: StepPlanned) -> None:
        self.num_blocks_free = decision.num_blocks_free  # exact: overrides what was added up since the last plan
        self.totals.num_evicted_blocks += len(decision.evicted_blocks)
        self._counted_step = decision.step

    def _on_step_planned(self, decision: StepPlanned, now_ns: int) -> None:
        """Its turn has come; when it was planned ahead its blocks are counted already."""
        if decision.step != self._counted_step:
            self._count_blocks(decision)
        live = self.live
        num_step_tokens = 0
        for request, start, count in decision.rows:
            num_step_tokens += count
            span = live.get(request)
            if span is None:
                continue
            num_output_tokens = span.num_output_tokens
            if num_output_tokens == 0 or start != span.num_prompt_tokens + num_output_tokens - 1:
                span.num_prefill_chunks += 1
                if span.num_cached_tokens < 0:  # its very first row begins behind what the prefix cache held
                    self._count_prefix_hit(span, start)
            if span.chunks is not None:
                span.chunks.append((decision.step, start, count))
        self._num_step_tokens = num_step_tokens
        self._planned = (decision.step, now_ns)

    def _count_prefix_hit(self, span: RequestSpan, num_cached_tokens: int) -> None:
        span.num_cached_tokens = num_cached_tokens
        self.totals.prefix_cache_queries += span.num_prompt_tokens
        self.totals.prefix_cache_hits += num_cached_tokens

    def _on_step_completed(self, event: StepCompleted, now_ns: int) -> None:
        totals = self.totals
        totals.num_steps += 1
        totals.execute_ns += event.execute_ns
        totals.sample_ns += event.sample_ns
        totals.swap_ns += event.swap_ns
        step, planned_ns = self._planned
        known_ns = event.execute_ns + event.sample_ns
        step_ns = now_ns - planned_ns if step == event.step else known_ns  # after a gap
        totals.step_ns += step_ns
        if event.swap_ns:
            totals.step_swap_seconds.observe(event.swap_ns / 1e9)
        totals.step_execute_seconds.observe(event.execute_ns / 1e9)
        totals.step_sample_seconds.observe(event.sample_ns / 1e9)
        totals.step_rest_seconds.observe(max(0, step_ns - known_ns) / 1e9)
        totals.iteration_tokens.observe(self._num_step_tokens)

    def _on_step_failed(self, event: StepFailed, now_ns: int) -> None:
        self.totals.num_failed_steps += 1

    def _on_tokens_emitted(self, decision: TokensEmitted, now_ns: int) -> None:
        totals, live = self.totals, self.live
        observe_gap = totals.inter_token_latency_seconds.observe
        totals.generation_tokens += len(decision.rows)
        for request, num_output_tokens in decision.rows:
            span = live.get(request)
            if num_output_tokens <= (span.num_output_tokens if span else self._ends.num_told(request)):
                totals.generation_tokens -= 1
                totals.num_tokens_emitted_again += 1
                continue
            if span is None:
                continue
            span.num_output_tokens = num_output_tokens
            if span.last_token_ns is not None:
                observe_gap((now_ns - span.last_token_ns) / 1e9)
            else:
                span.first_token_ns = now_ns
                totals.prompt_tokens += span.num_prompt_tokens
                totals.time_to_first_token_seconds.observe_of((now_ns - span.arrival_ns) / 1e9, span)
            span.last_token_ns = now_ns
            if span.token_times_ns is not None:
                span.token_times_ns.append(now_ns)

    # ── interruptions ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_gap(self, event: RecordingGap, now_ns: int) -> None:
        self.num_gap_entries += event.num_entries

    def _begin_again(self, event: ExecutorRestarted, now_ns: int) -> None:
        """A fresh engine: whoever lived in the one before goes on or is lost, also where nobody asked any more."""
        handed_over = dict(event.handed_over)
        self.totals.num_handovers += len(handed_over)
        for span in list(self.live.values()):
            if span.request in handed_over:
                self._wait_for_handover(span, event, now_ns)
                continue
            self.totals.finished[FinishReason.LOST] += 1
            self._end(span, FinishReason.LOST, now_ns)
        self.num_blocks_free = self.num_kv_blocks

    def _wait_for_handover(self, span: RequestSpan, event: ExecutorRestarted, now_ns: int) -> None:
        self._end_deferral(span, 0, now_ns)
        span.num_passes_told = 0
        self._swap(span, 0)
        self._move(span, Phase.WAITING if span.first_admitted_ns is None else Phase.PREEMPTED)
        span.num_handovers += 1
        span.is_between_engines = True
        self._note(span, now_ns, event)


_WAITING_PHASES = frozenset((Phase.WAITING, Phase.PREEMPTED))
