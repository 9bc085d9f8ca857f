"""Earliest target first: who must have its next token soonest, by its own TTFT and ITL targets, goes first.

A request's token k is due at arrival + TTFT target + k × ITL target (k = 0 for the first); a request without targets
of its own has those of the limits. The waiting are ordered by when their next token is due, and under pressure the
stream whose next token is due last, the one furthest ahead of its targets, gives way. How much prefill the same ITL
targets leave room for beside running streams is the `adaptive` phases' matter.

What cannot be met any more goes behind all that can, and the stream says so (`RequestDemoted`): its target passed, or
will before its own tokens are computed, even if it begins at once and gets all of each step that the budget leaves: so
long as the step-time model (`step_time.py`) expects these steps to take beside the streams of the last one. A waiting
request is looked at when it comes to the head, so a demotion costs a step nothing unless it matters for it.

**Bound.** Among those that can be met, a request is passed over only by ones that are due earlier, so by ones that
arrived at most (its TTFT target) later. A demoted one could be passed over forever: the starvation guard bounds that.
The theorem in `starvation.py` holds as it stands there: with O older live requests at most A = (O + 1) B + O (N + 1)
passes admit others first, at most (A + 1) W pass in all, and nobody is preempted more than N times
(B = max_passes_over, N = max_preemptions).
"""

from collections.abc import Sequence

from engine.core.decisions import Decision, FinishReason, RequestDemoted
from engine.core.limits import Limits
from engine.core.policies.interface import Policy
from engine.core.request import Request

NS_PER_MS = 1_000_000
_SMOOTHING = 8  # steps, by the first rules: a new step time moves the mean by 1/8 of the difference


class EarliestDeadlineFirst(Policy):
    name = "deadline"
    reranks = True

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._num_streams = 0  # that got a token from the last step
        self._context = 0  # tokens that these attend
        self._mean_step_ns = 0  # by the first rules
        self._demoted: dict[int, None] = {}  # waiting ones behind all others
        self._notices: dict[int, Decision] = {}

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        due_ns = self.due_ns(request)
        if request.number not in self._demoted:
            expected_ns = now_ns + self._min_time_ns(request)
            if expected_ns > due_ns:
                self._demoted[request.number] = None
                since_arrival = [(at - request.arrival_ns) // NS_PER_MS for at in (due_ns, expected_ns)]
                self._notices[request.number] = RequestDemoted(request.number, *since_arrival)
        return (int(request.number in self._demoted), due_ns)

    def victim(self, running: Sequence[Request], beneficiary: Request) -> Request:
        return max(running, key=lambda request: (self.due_ns(request), request.number))

    def on_left_queue(self, request: Request) -> None:
        self._demoted.pop(request.number, None)

    def on_step(self, emitting: Sequence[Request], step_ns: int, now_ns: int) -> None:
        if self.limits.decision_rules > 1:
            self._num_streams = len(emitting)
            self._context = sum([request.num_prompt_tokens + request.num_output_tokens for request in emitting])
        else:
            self._mean_step_ns += (step_ns - self._mean_step_ns) // _SMOOTHING if self._mean_step_ns else step_ns

    def on_finished(self, request: Request, reason: FinishReason) -> None:
        self._notices.pop(request.number, None)

    def take_notices(self) -> list[Decision]:
        notices = list(self._notices.values())
        self._notices.clear()
        return notices

    def due_ns(self, request: Request) -> int:
        """When its next token is due."""
        ttft_ms = request.ttft_target_ms or self.limits.ttft_target_ms
        itl_ms = request.itl_target_ms or self.limits.itl_target_ms
        return request.arrival_ns + (ttft_ms + request.num_output_tokens * itl_ms) * NS_PER_MS

    def _min_time_ns(self, request: Request) -> int:
        """What its known tokens take when it gets all of each step; 0 while too few steps were seen to tell."""
        num_uncomputed = request.num_uncomputed_tokens - request.num_swapped_tokens
        num_steps = -(-num_uncomputed // self.limits.max_num_batched_tokens)
        if self.limits.decision_rules < 2:
            return num_steps * self._mean_step_ns
        step_times = self.step_times
        if not step_times.is_reliable:
            return 0
        if num_uncomputed == 1:
            return step_times.decode_ns(self._num_streams + 1, self._context + request.num_tokens)
        beside_ns = step_times.decode_ns(self._num_streams, self._context)
        return num_steps * beside_ns + step_times.prefill_ns(request.num_swapped_tokens, num_uncomputed)
