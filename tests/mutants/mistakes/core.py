"""Mistakes in what events do to requests, in the queue's bounds, and in what ends them."""

from tests.mutants.mutation import Mutation

_PLANNER = "engine/core/planner.py"
_SCHEDULER = "engine/core/scheduler.py"
_QUEUE_LIMITS = "engine/core/queue_limits.py"

CORE = (
    Mutation(
        "a tenant over its own bound is told everybody's rate",
        _SCHEDULER,
        "if is_tenants_own(overrun.reason) and",
        "if False and",
    ),
    Mutation(
        "a tenant's bound in tokens is counted in requests",
        "engine/core/drain_rate.py",
        "if reason is RejectReason.TENANT_QUEUE_TOKENS_FULL:",
        "if False:",
    ),
    Mutation(
        "a token too many",
        _SCHEDULER,
        "elif request.num_output_tokens >= request.max_output_tokens:",
        "elif request.num_output_tokens > request.max_output_tokens:",
    ),
    Mutation(
        "a request whose logits were not finite goes on",
        _SCHEDULER,
        "            if flag == FinishFlag.ERROR:\n",
        "            if False:\n",
    ),
    Mutation(
        "a failed step takes only its first request with it",
        _SCHEDULER,
        "for number, _start, _count in plan.rows if number in self.requests]",
        "for number, _start, _count in plan.rows[:1] if number in self.requests]",
    ),
    Mutation(
        "a name in use is given out again",
        _SCHEDULER,
        "event.request_id in self._live_ids or event.request in self.requests,",
        "event.request in self.requests,",
    ),
    Mutation(
        "a name stays taken after its request",
        _SCHEDULER,
        "        del self._live_ids[request.request_id]\n",
        "",
    ),
    Mutation(
        "the queue takes one too many",
        _QUEUE_LIMITS,
        "self._num_requests + 1, limits.max_num_queued_reqs,",
        "self._num_requests, limits.max_num_queued_reqs,",
    ),
    Mutation(
        "a tenant's queue takes one too many",
        _QUEUE_LIMITS,
        "requests + 1, limits.max_num_queued_reqs_per_tenant,",
        "requests, limits.max_num_queued_reqs_per_tenant,",
    ),
    Mutation(
        "who ends in the queue keeps its place in the account",
        _PLANNER,
        "            if request.status is Status.WAITING:\n                self.queue.remove(request)\n",
        "",
    ),
    Mutation(
        "a preempted request expires",
        "engine/core/deadlines.py",
        "self._heap[0][2].status is not Status.WAITING:",
        "self._heap[0][2].status is Status.FINISHED:",
    ),
    Mutation(
        "a deadline passes a moment too late",
        "engine/core/deadlines.py",
        "while 0 < self.next_ns <= now_ns:",
        "while 0 < self.next_ns < now_ns:",
    ),
    Mutation(
        "a drain takes new requests",
        _SCHEDULER,
        "            (self._is_draining",
        "            (False",
    ),
)
