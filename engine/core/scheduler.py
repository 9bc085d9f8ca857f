"""The core: `handle(event, now_ns)` is its one entry; what is not an event cannot influence it.

It keeps the live requests and turns each event into decisions; whenever there is work and no step is under way it
lets the planner (`planner.py`) plan one, and one more while that runs where `async_scheduling` is on (`ahead.py`). A
request that ends while a step computes rows for it is gone at once; its rows in that step's result are ignored.
"""

from collections import deque

from engine.core.ahead import StepsAhead
from engine.core.deadlines import Deadlines
from engine.core.decisions import (
    Decision,
    FinishReason,
    RejectReason,
    RequestFinished,
    RequestRejected,
    StepPlanned,
    TokensEmitted,
)
from engine.core.drain_rate import DrainRate, is_tenants_own
from engine.core.errors import InvalidLimits, NonDeterministicCore
from engine.core.events import (
    AuditCompleted,
    CancelCause,
    DrainRequested,
    Event,
    ExecutorRestarted,
    FinishFlag,
    KVMismatch,
    PolicyChanged,
    RequestArrived,
    RequestCancelled,
    StepCompleted,
    StepFailed,
    StepLaunched,
    TimerFired,
)
from engine.core.kv_cache import BlockPool
from engine.core.kv_mismatch import make_right, taken_out, without_rows
from engine.core.limits import Limits
from engine.core.phases.registry import make_phases
from engine.core.planner import Planner
from engine.core.policies.change import POLICY_PARAMETERS, QUEUE_BOUNDS, limits_after
from engine.core.policies.interface import Policy, PolicyFactory
from engine.core.policies.registry import make_policy
from engine.core.queue_limits import Overrun
from engine.core.request import Request
from engine.core.step_time import StepTimeModel
from engine.core.swapping import Swapping


class Core:
    """One engine's state machine. Two cores with equal limits, fed equal events and times, decide equally."""

    def __init__(self, limits: Limits, make_policy: PolicyFactory = make_policy) -> None:
        """`make_policy` is handed in where an operator's own policy is to be known beside ours."""
        check_limits(limits)
        self.limits = limits
        self._make_policy = make_policy
        self.pool = BlockPool(limits.num_kv_blocks, enable_prefix_caching=limits.enable_prefix_caching)
        self.step_times = StepTimeModel()
        swapping = Swapping(limits, self.pool, self.step_times)
        phases = make_phases(limits, self.step_times)
        self.planner = Planner(limits, self._new_policy(limits), phases, self.pool, swapping)
        self.requests: dict[int, Request] = {}
        self._deadlines = Deadlines()
        self._live_ids: dict[str, int] = {}
        self._step_under_way: StepPlanned | None = None
        self._ahead = StepsAhead() if limits.async_scheduling else None
        self._is_draining = False
        self._drain_rate = DrainRate()
        self._handlers = {
            RequestArrived: self._on_arrived,
            RequestCancelled: self._on_cancelled,
            StepCompleted: self._on_step_completed,
            StepFailed: self._on_step_failed,
            DrainRequested: self._on_drain_requested,
            ExecutorRestarted: self._on_executor_restarted,
            PolicyChanged: self._on_policy_changed,
            KVMismatch: self._on_kv_mismatch,
            AuditCompleted: self._on_audit_completed,
            TimerFired: self._on_timer_fired,
            StepLaunched: self._on_step_launched,
        }

    @property
    def is_drained(self) -> bool:
        """Draining, and nothing is left to do."""
        return self._is_draining and not self.requests

    @property
    def next_timer_ns(self) -> int:
        """When the core wants a TimerFired; 0: not at all. While it is not 0 somebody waits, so a step is under way."""
        return self._deadlines.next_ns

    @property
    def step_under_way(self) -> StepPlanned | None:
        """The step whose result has not come yet; the earlier of two."""
        return self._step_under_way

    @property
    def step_ahead(self) -> StepPlanned | None:
        """The step that was planned while the one under way ran."""
        return None if self._ahead is None else self._ahead.plan

    def awaits_token_of(self, request: int) -> bool:
        """Its next token is counted, for a step was planned ahead; the result that brings it has not come."""
        return self._ahead is not None and request in self._ahead.awaited

    def check_invariants(self) -> None:
        """No block of either pool is lost or in two places. Cost: one pass over both."""
        self.pool.check_invariants()
        self.planner.swapping.check_invariants(self.requests.values())

    def handle(self, event: Event, now_ns: int) -> list[Decision]:
        """Decide on one event. `now_ns` is monotonic; it is the only clock reading the core is given.

        Raises NonDeterministicCore when the event cannot have followed the ones before it.
        """
        handler = self._handlers.get(type(event))
        if handler is None:
            raise NonDeterministicCore(f"the core knows no event {type(event).__name__}")
        decisions: list[Decision] = handler(event, now_ns)  # type: ignore[operator]  # the key is the handler's type
        if self._step_under_way is None:
            self._plan(decisions, now_ns)
        return decisions

    # ── requests come and go ─────────────────────────────────────────────────────────────────────────────────────

    def _on_arrived(self, event: RequestArrived, now_ns: int) -> list[Decision]:
        refusal = self._refusal(event, now_ns)
        if refusal is not None:
            return [refusal]
        request = Request(event)
        self.requests[request.number] = request
        self._live_ids[request.request_id] = request.number
        self._deadlines.add(request)
        self.planner.enqueue(request, now_ns)
        return []

    def _refusal(self, event: RequestArrived, now_ns: int) -> RequestRejected | None:
        """The first bound that the request breaks, with the figures; None when it may wait."""
        limits = self.limits
        num_slots = limits.num_kv_blocks * limits.block_size
        num_tokens = event.num_prompt_tokens + event.max_output_tokens
        checks = (
            (self._is_draining and not event.num_handovers, RejectReason.DRAINING, 0, 0),
            (
                event.request_id in self._live_ids or event.request in self.requests,
                RejectReason.DUPLICATE_REQUEST,
                0,
                0,
            ),
            (
                event.num_prompt_tokens >= limits.max_model_len,
                RejectReason.PROMPT_TOO_LONG,
                event.num_prompt_tokens,
                limits.max_model_len - 1,
            ),
            (num_tokens > limits.max_model_len, RejectReason.CONTEXT_TOO_LONG, num_tokens, limits.max_model_len),
            (event.num_prompt_tokens > num_slots, RejectReason.EXCEEDS_KV_CACHE, event.num_prompt_tokens, num_slots),
        )
        for is_broken, reason, asked, limit in checks:
            if is_broken:
                return RequestRejected(event.request, reason, asked, limit, 0)
        overrun = None if event.num_handovers else self.planner.queue.overrun(event)
        return overrun and RequestRejected(event.request, *overrun, self._retry_after_ms(overrun, event.tenant, now_ns))

    def _retry_after_ms(self, overrun: Overrun, tenant: str, now_ns: int) -> int:
        """When what waits should have drained: the tenant's own where the bound is its own."""
        if is_tenants_own(overrun.reason) and self.limits.decision_rules > 1:
            queued = self.planner.queue.of_tenant(tenant)
            return self._drain_rate.retry_after_ms_of(tenant, overrun.reason, *queued, now_ns)
        return self._drain_rate.retry_after_ms(len(self.planner.waiting), now_ns)

    def _on_cancelled(self, event: RequestCancelled, now_ns: int) -> list[Decision]:
        request = self.requests.get(event.request)
        if request is None:  # it ended before the cancel arrived
            return []
        drained = event.cause == CancelCause.DRAIN
        return [self._finish(request, FinishReason.DRAINED if drained else FinishReason.CANCELLED, now_ns)]

    def _on_timer_fired(self, event: TimerFired, now_ns: int) -> list[Decision]:
        expired = self._deadlines.take_expired(now_ns)
        return [self._finish(request, FinishReason.EXPIRED, now_ns) for request in expired]

    def _on_drain_requested(self, event: DrainRequested, now_ns: int) -> list[Decision]:
        self._is_draining = True
        return []

    def _on_executor_restarted(self, event: ExecutorRestarted, now_ns: int) -> list[Decision]:
        return [
            RequestFinished(
                number,
                FinishReason.FAILED if number in event.blamed else FinishReason.LOST,
                num_prompt_tokens,
                num_output_tokens,
                0,
                0,
                0,
            )
            for number, _request_id, num_prompt_tokens, num_output_tokens in event.lost
        ]

    def _on_kv_mismatch(self, event: KVMismatch, now_ns: int) -> list[Decision]:
        """It is seen before the step under way is executed, if there is one: whoever is made right has no row in it."""
        if self.step_ahead is not None:
            raise NonDeterministicCore("a KV mismatch was told between a step's launch and its result")
        decisions = make_right(
            event,
            self.requests,
            self.planner,
            self.pool,
            lambda request: self._finish(request, FinishReason.FAILED, now_ns),
        )
        if self._step_under_way is not None:
            self._step_under_way = without_rows(self._step_under_way, taken_out(decisions))
        return decisions

    def _on_audit_completed(self, event: AuditCompleted, now_ns: int) -> list[Decision]:
        """It is told, and decides nothing: the request is gone."""
        return []

    def check_policy_change(self, event: PolicyChanged) -> None:
        """Raises UnknownPolicy or InvalidLimits when `event` must not be handled: it is refused before it is one."""
        limits = limits_after(self.limits, event.policy, event.parameters)
        check_limits(limits)
        self._make_policy(limits)

    def _on_policy_changed(self, event: PolicyChanged, now_ns: int) -> list[Decision]:
        self.limits = limits_after(self.limits, event.policy, event.parameters)
        live = list(self.requests.values())
        policy = self._new_policy(self.limits)
        self.planner.change_policy(self.limits, policy, live, now_ns)
        if event.counted:
            policy.go_on_from(event.counted)
        return []

    def _new_policy(self, limits: Limits) -> Policy:
        policy = self._make_policy(limits)
        policy.step_times = self.step_times
        return policy

    def _finish(self, request: Request, reason: FinishReason, now_ns: int) -> RequestFinished:
        if self._ahead is not None:
            self._ahead.give_up(request)
        finished = self.planner.finish(request, reason)
        self._forget(request, now_ns)
        return finished

    def _forget(self, request: Request, now_ns: int) -> None:
        del self.requests[request.number]
        del self._live_ids[request.request_id]
        self._drain_rate.ended(request, now_ns)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _plan(self, decisions: list[Decision], now_ns: int) -> None:
        planned = self.planner.plan_step(now_ns)
        self._forget_finished(planned, now_ns)
        decisions.extend(planned)
        if planned and type(planned[-1]) is StepPlanned:
            self._step_under_way = planned[-1]

    def _forget_finished(self, planned: list[Decision], now_ns: int) -> None:
        """Those that the pass has brought to their ends."""
        for decision in planned:
            if type(decision) is RequestFinished:
                self._forget(self.requests[decision.request], now_ns)

    def _take_step(self, step: int) -> StepPlanned:
        plan = self._step_under_way
        self._step_under_way = None if self._ahead is None else self._ahead.take_plan()
        if plan is None or plan.step != step:
            planned = "none" if plan is None else f"step {plan.step}"
            raise NonDeterministicCore(f"the result of step {step} arrived while {planned} is under way")
        return plan

    def _on_step_launched(self, event: StepLaunched, now_ns: int) -> list[Decision]:
        launched, ahead = self._step_under_way, self._ahead
        if launched is None or launched.step != event.step or self.step_ahead is not None:
            raise NonDeterministicCore(f"step {event.step} was launched, but it is not the one to be launched")
        if ahead is None:
            return []
        decisions = ahead.plan_after(launched, self.requests, self.planner, now_ns)
        self._forget_finished(decisions, now_ns)
        return decisions

    def _observe_copies(self, swap_ns: int) -> None:
        self.planner.swapping.cost.observe(swap_ns)
        if self._ahead is not None:
            self.planner.swapping.cost.planned(self._ahead.take_copies())

    def _on_step_completed(self, event: StepCompleted, now_ns: int) -> list[Decision]:
        plan = self._take_step(event.step)
        awaited = {} if self._ahead is None else self._ahead.awaited
        notices = self._learn(plan, event.execute_ns + event.sample_ns)
        self._observe_copies(event.swap_ns)
        self._advance(plan, event)
        emitted: list[tuple[int, int]] = []
        emitting: list[Request] = []
        finished: list[Decision] = []
        for number, flag, _hidden_digest, _logprob_bits in event.emitted:
            request = self.requests.get(number)
            if request is None:
                continue
            if flag == FinishFlag.ERROR:
                finished.append(self._finish(request, FinishReason.FAILED, now_ns))
                continue
            if request.max_output_tokens == 0:  # only its prompt was asked for: what would follow is told to nobody
                finished.append(self._finish(request, FinishReason.LENGTH, now_ns))
                continue
            if number in awaited:
                del awaited[number]
            else:
                request.num_output_tokens += 1
            emitted.append((number, request.num_output_tokens))
            emitting.append(request)
            if flag == FinishFlag.STOP:
                finished.append(self._finish(request, FinishReason.STOP, now_ns))
            elif request.num_output_tokens >= request.max_output_tokens:
                finished.append(self._finish(request, FinishReason.LENGTH, now_ns))
        if awaited:
            raise NonDeterministicCore(f"step {event.step} was to draw a token for {sorted(awaited)}, and did not")
        self.planner.policy.on_step(emitting, event.execute_ns + event.sample_ns, now_ns)
        if emitted:
            return [TokensEmitted(plan.step, tuple(emitted)), *finished, *notices]
        return [*finished, *notices]

    def _learn(self, plan: StepPlanned, step_ns: int) -> list[Decision]:
        """From a step's time and its tokens; before these are counted."""
        num_tokens = self.limits.max_num_batched_tokens - plan.token_budget_left
        has_prefill = num_tokens > len(plan.rows)
        self.step_times.observe_step(plan.rows, num_tokens, step_ns)
        self.planner.phases.completed(has_prefill, step_ns)
        num_recomputed = self._num_recomputed(plan) if has_prefill else 0
        return self.planner.admission.thrash.computed(num_tokens, num_recomputed)

    def _num_recomputed(self, plan: StepPlanned) -> int:
        """Of the tokens in rows of more than one, those that were computed before their request was preempted."""
        total = 0
        for number, start, count in plan.rows:
            request = self.requests.get(number) if count > 1 else None
            if request is not None and start < request.num_once_computed:
                total += min(start + count, request.num_once_computed) - start
        return total

    def _advance(self, plan: StepPlanned, event: StepCompleted) -> None:
        """Count what was computed, and index the blocks that are now full and written."""
        filled: dict[int, deque[bytes]] = {}
        for number, digest in event.filled:
            filled.setdefault(number, deque()).append(digest)
        block_size = self.limits.block_size
        for number, start, count in plan.rows:
            request = self.requests.get(number)
            if request is None:
                continue
            end = request.num_computed_tokens = start + count
            for index in range(start // block_size, end // block_size):
                if index >= request.num_prompt_tokens // block_size:
                    self._take_digest(request, index, filled)
                self.pool.index(request.block_table[index], request.block_digests[index])

    def _take_digest(self, request: Request, index: int, filled: dict[int, deque[bytes]]) -> None:
        """The next digest reported for `request` belongs to block `index`; a recomputed block has its old digest."""
        reported = filled.get(request.number)
        if not reported:
            raise NonDeterministicCore(
                f"request {request.number}: block {index} filled, but its digest was not reported"
            )
        digest = reported.popleft()
        if index == len(request.block_digests):
            request.block_digests.append(digest)
        elif request.block_digests[index] != digest:
            raise NonDeterministicCore(f"request {request.number}: block {index} was recomputed with another digest")

    def _on_step_failed(self, event: StepFailed, now_ns: int) -> list[Decision]:
        plan = self._take_step(event.step)
        self._observe_copies(0)
        rows = [self.requests[number] for number, _start, _count in plan.rows if number in self.requests]
        return [self._finish(request, FinishReason.FAILED, now_ns) for request in rows]


def check_limits(limits: Limits) -> None:
    """Raises InvalidLimits when no progress could be promised under `limits`."""
    for field in ("block_size", "num_kv_blocks", "max_model_len", "max_num_seqs", "max_num_batched_tokens"):
        if getattr(limits, field) < 1:
            raise InvalidLimits(f"{field} is {getattr(limits, field)}: it must be at least 1")
    if limits.swap_space_blocks < 0:
        raise InvalidLimits(f"swap_space_blocks is {limits.swap_space_blocks}: it must be at least 0; 0 swaps nothing")
    for field in QUEUE_BOUNDS:
        value = getattr(limits, field)
        if type(value) is not int or value < 0:
            raise InvalidLimits(f"{field} is {value!r}: it must be a whole number, at least 0")
    if limits.max_num_queued_reqs < 1:
        raise InvalidLimits(
            f"max_num_queued_reqs is {limits.max_num_queued_reqs}: at least 1 request must be able to wait"
        )
    if limits.max_num_batched_tokens < limits.max_num_seqs:
        raise InvalidLimits(
            f"max_num_batched_tokens ({limits.max_num_batched_tokens}) is less than max_num_seqs "
            f"({limits.max_num_seqs}): every running request needs room for one token in a step; "
            "raise the first or lower the second"
        )
    check_policy_limits(limits)


def check_policy_limits(limits: Limits) -> None:
    """Raises InvalidLimits when a parameter of a policy, or a bound of the starvation guard, is out of range."""
    for field in POLICY_PARAMETERS:
        least = 0 if field == "priority_aging_ns" else 1
        value = getattr(limits, field)
        if field != "tenant_weights" and (type(value) is not int or value < least):
            raise InvalidLimits(f"{field} is {value!r}: it must be a whole number, at least {least}")
    for tenant, weight in limits.tenant_weights:
        if type(tenant) is not str or type(weight) is not int or weight < 1:
            raise InvalidLimits(
                f"tenant_weights gives {tenant!r} the weight {weight!r}: it must be a whole number, at least 1"
            )
