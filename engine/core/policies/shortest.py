"""Shortest predicted remaining work first, with output lengths learned from the requests that ended.

Work is priced as for `fair`: known tokens to compute at `prefill_token_price`, predicted tokens to emit at
`decode_token_price`. The prediction is the running mean of the ends of the same tenant and prompt length
(`output_lengths.py`), never more than the request's own maximum; one that has outlived it is expected to emit as much
again. What was learned meanwhile moves a waiting request when it comes to the head of the queue. Under pressure the
running request with the most predicted work left gives way.

**Bound.** The order alone starves: endless short requests pass a long one over forever. The starvation guard bounds it:
after max_passes_over passes that admit a younger one, the oldest of the waiting goes first, and the theorem in
`starvation.py` holds as it stands there: with O older live requests at most A = (O + 1) B + O (N + 1) passes admit
others first, at most (A + 1) W pass in all, and nobody is preempted more than N times (B = max_passes_over,
N = max_preemptions). The price for the short ones is at most one admission in B + 1.
"""

from collections.abc import Sequence
from typing import Any

from engine.core.decisions import FinishReason
from engine.core.limits import Limits
from engine.core.policies.interface import Policy
from engine.core.policies.output_lengths import OutputLengths
from engine.core.request import Request

MAX_HANDED_OVER = 1_000  # means that the next engine is told
_OWN_ENDS = (FinishReason.STOP, FinishReason.LENGTH)


class ShortestFirst(Policy):
    name = "shortest"
    reranks = True

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.lengths = OutputLengths()

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        return (self.remaining_work(request),)

    def victim(self, running: Sequence[Request], beneficiary: Request) -> Request:
        return max(running, key=lambda request: (self.remaining_work(request), request.number))

    def take_over(self, before: Policy) -> None:
        if isinstance(before, ShortestFirst):
            self.lengths = before.lengths

    def to_hand_over(self) -> tuple[tuple[Any, ...], ...]:
        return self.lengths.latest(MAX_HANDED_OVER)

    def go_on_from(self, counted: Sequence[tuple[Any, ...]]) -> None:
        self.lengths.go_on_from(counted)

    def on_finished(self, request: Request, reason: FinishReason) -> None:
        if reason in _OWN_ENDS:
            self.lengths.learn(request.tenant, request.num_prompt_tokens, request.num_output_tokens)

    def remaining_work(self, request: Request) -> int:
        """In units of the prices."""
        num_output_tokens = request.num_output_tokens
        predicted = self.lengths.predict(request.tenant, request.num_prompt_tokens) - num_output_tokens
        if predicted <= 0:
            predicted = num_output_tokens
        num_left = min(predicted, request.max_output_tokens - num_output_tokens)
        prices = self.limits
        num_uncomputed = request.num_uncomputed_tokens - request.num_swapped_tokens
        return num_uncomputed * prices.prefill_token_price + num_left * prices.decode_token_price
